"""Which model's files a request wants, and what keeps its cache apart from others'."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from router.adapters.tokenizer.bodies import Text, read_body
from router.adapters.tokenizer.model_files import Model, load_model
from router.core.token_ids import TokenIds, token_scope

_decode = msgspec.json.Decoder().decode

ParentOf = Callable[[str], str | None]
"""From the name of an adapter to its base model's; None for a base model, and where nothing is known."""


class Models:
    """The models that tokenizers were given for, by name. The one under the empty name is for all others."""

    def __init__(self, by_name: Mapping[str, Model], parent_of: ParentOf) -> None:
        self.by_name = by_name
        self._parent_of = parent_of

    def find(self, name: str) -> tuple[Model | None, str | None]:
        """Return a model's files, None where there are none for it; and its name, where it is an adapter."""
        parent = self._parent_of(name)
        model = self.by_name.get(name) or self.by_name.get(parent or name) or self.by_name.get("")
        return model, None if parent is None else name


def load_models(specs: Mapping[str, Path], chat_template: Path | None, parent_of: ParentOf) -> Models:
    """Load the files of every model. Raises TokenizerFileError."""
    return Models({name: load_model(path, chat_template) for name, path in specs.items()}, parent_of)


def tokenised(model: Model, lora_name: str | None, shape: str, body: bytes) -> TokenIds:
    """Return a request's prompt as tokens. Takes as long as it takes: not for the event loop.

    Raises Unrendered for what can't be rendered exactly, else whatever the template or the tokenizer raises.
    """
    fields = _decode(body)
    source = read_body(shape, fields, model.template_for(bool(fields.get("tools"))))
    if isinstance(source, array):
        ids = source
    elif isinstance(source, Text):
        ids = model.encoder.encode(source.text, source.add_special_tokens)
    else:
        template = model.template_for(source.tools is not None)
        assert template is not None  # read_body gives no chat without one
        ids = model.encoder.encode(template.render(source), source.add_special_tokens)
    salt = fields.get("cache_salt")
    return TokenIds(ids, token_scope(lora_name, salt if isinstance(salt, str) else None))
