"""Make a tiny chat model with random weights (Qwen3 style) that a real vLLM server can load. Nothing is downloaded.

    VLLM_PYTHON tests/contract/tiny_model.py OUT_DIR [--hidden 64] [--layers 2]

Run it with the interpreter that has vLLM: tokenizers, torch and safetensors come with it. The tokenizer is a byte-level
BPE trained on that Python's standard library and the weights are seeded noise, so the same arguments on the same Python
give the same files.
"""

import argparse
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# ChatML. The rendering of turns 1..n without generation prompt is a prefix of the rendering of turns 1..n+1.
CHAT_TEMPLATE = (
    "{%- if tools %}"
    "{{- '<|im_start|>system\\nTools:\\n' }}"
    "{%- for t in tools %}{{- t | tojson }}{{- '\\n' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m['role'] + '\\n' }}"
    "{%- if m['content'] is string %}{{- m['content'] }}"
    "{%- elif m['content'] %}"
    "{%- for p in m['content'] %}{%- if p['type'] == 'text' %}{{- p['text'] }}{%- endif %}{%- endfor %}"
    "{%- endif %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY_TOKENS = 4_096
CORPUS_BYTES = 3_000_000
MAX_LEN_TOKENS = 32_768
HEADS, KV_HEADS, HEAD_DIM = 2, 1, 32


def corpus() -> Iterator[str]:
    """Yield the standard library's text in a fixed order, as much as training needs."""
    left = CORPUS_BYTES
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        yield text
        left -= len(text)
        if left <= 0:
            return


def make_tokenizer(out: Path) -> dict[str, int]:
    """Train and write the tokenizer; return the ids of the special tokens."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_TOKENS,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_LEN_TOKENS,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    ids = {name: tokenizer.token_to_id(name) for name in SPECIAL}
    return {name: number for name, number in ids.items() if number is not None}


def make_config(out: Path, special: dict[str, int], hidden: int, layers: int) -> None:
    """Write the model's configuration."""
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "hidden_size": hidden,
        "intermediate_size": hidden * 2,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": MAX_LEN_TOKENS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "vocab_size": VOCABULARY_TOKENS,
        "bos_token_id": None,
        "eos_token_id": special["<|im_end|>"],
        "pad_token_id": special["<|endoftext|>"],
        "use_cache": True,
        "initializer_range": 0.02,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    generation = {"eos_token_id": [special["<|im_end|>"]], "pad_token_id": special["<|endoftext|>"]}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def shapes(hidden: int, layers: int) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every weight."""
    heads, kv_heads = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY_TOKENS, hidden)}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        found |= {
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
            f"{prefix}self_attn.q_proj.weight": (heads, hidden),
            f"{prefix}self_attn.k_proj.weight": (kv_heads, hidden),
            f"{prefix}self_attn.v_proj.weight": (kv_heads, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, heads),
            f"{prefix}self_attn.q_norm.weight": (HEAD_DIM,),
            f"{prefix}self_attn.k_norm.weight": (HEAD_DIM,),
            f"{prefix}mlp.gate_proj.weight": (hidden * 2, hidden),
            f"{prefix}mlp.up_proj.weight": (hidden * 2, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, hidden * 2),
        }
    return found | {"model.norm.weight": (hidden,), "lm_head.weight": (VOCABULARY_TOKENS, hidden)}


def make_weights(out: Path, hidden: int, layers: int, seed: int) -> None:
    """Write noise for the matrices and ones for the norms."""
    import torch  # type: ignore[import-not-found]
    from safetensors.torch import save_file  # type: ignore[import-not-found]

    chance = torch.Generator().manual_seed(seed)

    def weight(shape: tuple[int, ...]):
        if len(shape) == 1:
            return torch.ones(shape, dtype=torch.bfloat16)
        return (torch.randn(*shape, generator=chance) * shape[-1] ** -0.5).to(torch.bfloat16)

    weights = {name: weight(shape) for name, shape in shapes(hidden, layers).items()}
    save_file(weights, str(out / "model.safetensors"), metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    special = make_tokenizer(given.out)
    make_config(given.out, special, given.hidden, given.layers)
    make_weights(given.out, given.hidden, given.layers, given.seed)


if __name__ == "__main__":
    main()
