"""A tiny byte-level tokenizer with special tokens, trained in milliseconds, and a model's directory around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>")
CORPUS = [
    "You are a helpful assistant. The weather in the city is cold and the rain is warm, user and assistant say.",
    "def route(request):\n    return min(replicas, key=lambda replica: replica.queue_s)\n",
    "Überall ist Wetter, 東京 auch. 12345 67890 \t tokens and blocks, blocks and tokens.",
] * 3

CHATML = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def tiny_tokenizer(*added: AddedToken, bos: bool = False) -> Tokenizer:
    """Train one. `added`: further tokens; `bos`: put <|endoftext|> before every text that is to be completed."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    made.add_tokens(list(added))
    if bos:
        made.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", made.token_to_id("<|endoftext|>"))]
        )
    return made


def write_model(folder: Path, tokenizer: Tokenizer, template: str | None = CHATML, **config: Any) -> Path:
    """Write a model's directory; `config` goes into tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    written = {"eos_token": "<|im_end|>", "bos_token": None} | config
    if template is not None:
        written["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
    return folder
