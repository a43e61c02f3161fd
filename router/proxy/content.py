"""From a message's content to the canonical prompt: texts, tool calls and their results, media."""

from __future__ import annotations

import msgspec

from router.core.prompt import Bytes, PromptBuilder

Raw = msgspec.Raw

QUOTE = ord('"')

CANONICAL_BYTES = 1 << 16
"""A JSON string above this size is hashed as it is written, escapes and all: reading 8 MiB of them takes 10 ms, in
which no stream moves. The same client writes the same text the same way in the next turn, which is what counts."""

ATTRIBUTION = b"x-anthropic-billing-header"
"""Claude Code begins its system prompt with a line that begins with this, another one in each session, in some releases
in each request. vLLM leaves the line out of system messages, so it is none of the prompt's identity."""

_NONE = Raw(b"null")
_UNRENDERED = frozenset({"thinking", "redacted_thinking"})
"""Anthropic's parts with reasoning, which chats have in a field that is not read either."""


class _Part(msgspec.Struct, gc=False):
    type: str = ""
    text: str | None = None
    name: Raw = _NONE
    input: Raw = _NONE
    content: Raw = _NONE
    source: Raw = _NONE


_decode_part = msgspec.json.Decoder(_Part).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def add_content(builder: PromptBuilder, role: bytes, raw: Raw) -> None:
    """Add a text, or a list of parts: text by its characters, tool calls and results by theirs, all else by a digest.

    Raises:
        msgspec.MsgspecError, ValueError, RecursionError: a part is no JSON of its shape.
    """
    view = memoryview(raw)
    if len(view) > CANONICAL_BYTES and view[0] == QUOTE:
        builder.add(role, view[1:-1])
        return
    data = bytes(raw)
    if data[:1] == b"[":
        _add_parts(builder, role, data)
    elif data[:1] == b'"':
        text = read_text(data)
        if not (role == b"system" and bytes(text[: len(ATTRIBUTION)]) == ATTRIBUTION):
            builder.add(role, text)
        elif rest := _unattributed(bytes(text)):
            builder.add(role, rest)
    elif data != b"null":
        builder.add(role, data)


def read_text(raw: bytes) -> Bytes:
    """Return a JSON string's characters as UTF-8. Without a backslash they stand in the body as they are."""
    if len(raw) > CANONICAL_BYTES:
        return memoryview(raw)[1:-1]
    return _decode_text(raw).encode() if b"\\" in raw else raw[1:-1]


def _add_parts(builder: PromptBuilder, role: bytes, data: bytes, *, nested: bool = False) -> None:
    """Add the parts of a list. What a tool's result holds is `nested`: a result within it is one more digest."""
    texts: list[Bytes] = []
    for part_raw in _decode_raws(data):
        part = bytes(part_raw)
        if part[:1] == b'"':
            texts.append(read_text(part))
            continue
        read = _decode_part(part)
        if read.text is not None:
            text = read.text.encode()
            texts.append(_unattributed(text) if role == b"system" else text)
        elif read.type not in _UNRENDERED:
            _add_texts(builder, role, texts)
            texts = []
            _add_other(builder, read, part, nested=nested)
    _add_texts(builder, role, texts)


def _add_texts(builder: PromptBuilder, role: bytes, texts: list[Bytes]) -> None:
    if texts:
        builder.add(role, b"".join(texts))


def _add_other(builder: PromptBuilder, read: _Part, part: bytes, *, nested: bool) -> None:
    """Add a part without text. Anthropic's calls and results count as those of a chat do, which has them elsewhere."""
    if read.type == "tool_use":
        builder.add(b"call", bytes(read.name) + bytes(read.input))
    elif read.type != "tool_result" or nested:
        # Anthropic's media by their source alone: clients move a cache mark on to the newest part in each turn.
        builder.add_media(part if read.source == _NONE else bytes(read.source))
    elif bytes(read.content)[:1] == b"[":
        _add_parts(builder, b"tool", bytes(read.content), nested=True)
    else:
        add_content(builder, b"tool", read.content)


def _unattributed(text: bytes) -> bytes:
    return text.partition(b"\n")[2] if text.startswith(ATTRIBUTION) else text
