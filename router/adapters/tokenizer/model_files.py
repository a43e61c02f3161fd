"""A model's files as they come from a hub: its tokenizer, its chat templates, its special tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateSyntaxError
from tokenizers import Tokenizer

from router.adapters.tokenizer.encoder import Encoder
from router.adapters.tokenizer.template import ChatTemplate
from router.adapters.tokenizer.trouble import TokenizerFileError

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

_OWN_RENDERERS = frozenset({"gpt_oss", "deepseek_v32", "deepseek_v4", "deepseek_v41", "kimi_k3", "inkling"})
"""Model types whose chats vLLM renders in code of its own, whatever template lies beside them."""


class Model(NamedTuple):
    """One model's way from a request to ids."""

    encoder: Encoder
    template: ChatTemplate | None
    """None: it has none, and its chats are not tokenised."""
    tool_template: ChatTemplate | None
    """For chats with tools, where it is another."""

    def template_for(self, with_tools: bool) -> ChatTemplate | None:
        """Return the template of a chat."""
        return self.tool_template if with_tools and self.tool_template is not None else self.template


def load_model(path: Path, chat_template: Path | None = None) -> Model:
    """Load a model's directory, or the `tokenizer.json` in it. `chat_template` goes before the model's own.

    Raises TokenizerFileError.
    """
    folder, file = (path, path / "tokenizer.json") if path.is_dir() else (path.parent, path)
    config = _read_json(folder / "tokenizer_config.json")
    tokenizer = _tokenizer(file)
    named = _special_tokens(folder, config)
    sources = _sources(folder, config, chat_template)
    if _read_json(folder / "config.json").get("model_type") in _OWN_RENDERERS:
        sources = {}
    made = {name: _template(source, named) for name, source in sources.items()}
    return Model(Encoder(tokenizer, _frame(tokenizer, config, named)), made.get("default"), made.get("tool_use"))


def _tokenizer(file: Path) -> Tokenizer:
    if not file.is_file():
        raise TokenizerFileError(f"tokenizer: there is no {file}")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
        raise TokenizerFileError(f"tokenizer: {file} can't be used: {error}") from None


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerFileError(f"tokenizer: {file} can't be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _special_tokens(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    given = _read_json(folder / "special_tokens_map.json") | config
    return {name: text for name in _NAMED if (text := _content(given.get(name))) is not None}


def _content(token: object) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _sources(folder: Path, config: dict[str, Any], chat_template: Path | None) -> dict[str, str]:
    """Return the templates by name; in the order in which they hide each other."""
    if chat_template is not None:
        return {"default": _read_text(chat_template)}
    file = folder / "chat_template.jinja"
    if file.is_file():
        more = sorted((folder / "additional_chat_templates").glob("*.jinja"))
        return {"default": _read_text(file)} | {one.stem: _read_text(one) for one in more}
    found = config.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(found, str):
        return {"default": found}
    return {one["name"]: one["template"] for one in found or () if isinstance(one, dict)}


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerFileError(f"chat template: {file} can't be read: {error}") from None


def _template(source: str, special_tokens: dict[str, str]) -> ChatTemplate:
    try:
        return ChatTemplate(source, special_tokens)
    except TemplateSyntaxError as error:
        raise TokenizerFileError(f"chat template: line {error.lineno}: {error.message}") from None


def _frame(
    tokenizer: Tokenizer, config: dict[str, Any], named: dict[str, str]
) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the ids around a text where the configuration says so, as transformers 5 reads it."""
    if "add_bos_token" not in config and "add_eos_token" not in config:
        return None
    bos, eos = (_id_of(tokenizer, named.get(name)) for name in ("bos_token", "eos_token"))
    return (bos if config.get("add_bos_token") else []), (eos if config.get("add_eos_token") else [])


def _id_of(tokenizer: Tokenizer, token: str | None) -> list[int]:
    found = None if token is None else tokenizer.token_to_id(token)
    return [] if found is None else [found]
