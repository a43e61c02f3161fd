"""From the bytes of a request to a `RoutingRequest`: parsed once, forwarded as received, never refused."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from router.core.prompt import PromptBuilder, scope_hash, session_hash
from router.core.types import Prompt, RoutingRequest
from router.proxy.content import add_content, read_text
from router.proxy.model_field import form_model

Raw = msgspec.Raw

TOKEN_ID_BYTES = 4
"""Canonical size of one token id: a 32-bit integer."""

PRIORITY_HEADERS = (b"x-warmroute-priority", b"x-vllm-priority")
"""The router's own, and vLLM's. Both win over the body's `priority`, as vLLM's does."""

_STORED = scope_hash("stored-object")
_NONE = Raw(b"null")


class _Message(msgspec.Struct, gc=False):
    role: Any = ""
    type: Any = ""
    content: Raw = _NONE
    tool_calls: Raw = _NONE
    output: Raw = _NONE
    name: Raw = _NONE
    arguments: Raw = _NONE


class _Body(msgspec.Struct):
    """The fields of all shapes that routing looks at; everything else is skipped unread."""

    model: str = ""
    stream: bool | None = None
    cache_salt: str | None = None
    messages: list[_Message] | None = None
    prompt: Raw = _NONE
    input: Raw = _NONE
    instructions: str | None = None
    system: Raw = _NONE
    tools: Raw = _NONE
    documents: Raw = _NONE
    chat_template: Raw = _NONE
    chat_template_kwargs: Raw = _NONE
    session_id: Any = None
    prompt_cache_key: Any = None
    conversation: Any = None
    previous_response_id: Any = None
    priority: Any = None


class _Named(msgspec.Struct):
    model: str = ""


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_named = msgspec.json.Decoder(_Named).decode
_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_ids = msgspec.json.Decoder(list[int]).decode


def is_batch(urgency: str) -> bool:
    """Tell whether a priority header asks for less than the usual: `batch`, or a number above 0 as vLLM has it."""
    word = urgency.strip().lower()
    return word == "batch" or (word.isdecimal() and word.strip("0") != "")


def stored_object_hash(object_id: str) -> int:
    """Return the key under which the replica that stores an object (a response) is remembered."""
    return session_hash(_STORED, object_id)


def read_request(path: str, body: bytes, session: str | None) -> RoutingRequest:
    """Read what routing needs. `session`: the session header's value.

    A body that is not of the path's shape is routed by load: the engine has the last word on it.
    """
    shape = SHAPES.get(path)
    if shape is None:
        return _unread(path, body, session)
    try:
        fields = _decode_body(body)
        scope = scope_hash(fields.model, fields.cache_salt or "")
        prompt = _READERS[shape](fields, scope)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return _unread(path, body, session)
    hint, explicit = _session(fields, session)
    previous = fields.previous_response_id
    return RoutingRequest(
        fields.model,
        shape,
        prompt,
        len(body),
        bool(fields.stream),
        None if hint is None else session_hash(scope_hash(fields.model), hint),
        explicit,
        stored_object_hash(previous) if isinstance(previous, str) else None,
        isinstance(fields.priority, int) and fields.priority > 0,
    )


def _unread(path: str, body: bytes, session: str | None) -> RoutingRequest:
    try:
        model = _decode_named(body).model if body[:1] == b"{" else form_model(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        model = ""
    stored = None
    if path.startswith("/v1/responses/"):
        stored = stored_object_hash(path.split("/")[3])
    hint = None if session is None else session_hash(scope_hash(model), session)
    return RoutingRequest(model, "unknown", None, len(body), False, hint, hint is not None, stored)


def _session(fields: _Body, header: str | None) -> tuple[str | None, bool]:
    """Return the session hint and whether it is explicit."""
    if header is not None:
        return header, True
    if isinstance(fields.session_id, str) and fields.session_id:
        return fields.session_id, True
    conversation = fields.conversation
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    for hint in (fields.prompt_cache_key, conversation):
        if isinstance(hint, str) and hint:
            return hint, False
    return None, False


def _read_chat(fields: _Body, scope: int) -> Prompt | None:
    builder = PromptBuilder(scope)
    _add_preamble(builder, fields)
    _add_messages(builder, fields.messages or ())
    return builder.build()


def _read_anthropic(fields: _Body, scope: int) -> Prompt | None:
    builder = PromptBuilder(scope)
    _add_preamble(builder, fields)
    if fields.system != _NONE:
        add_content(builder, b"system", fields.system)
    _add_messages(builder, fields.messages or ())
    return builder.build()


def _read_responses(fields: _Body, scope: int) -> Prompt | None:
    builder = PromptBuilder(scope)
    _add_preamble(builder, fields)
    if fields.instructions:
        builder.add(b"system", fields.instructions.encode())
    if isinstance(fields.previous_response_id, str):
        # The history itself is stored on the replica; its id stands for it.
        builder.add(b"previous", fields.previous_response_id.encode())
    if bytes(fields.input)[:1] == b"[":
        _add_messages(builder, _decode_messages(fields.input))
    elif fields.input != _NONE:
        add_content(builder, b"user", fields.input)
    return builder.build()


def _read_completion(fields: _Body, scope: int) -> Prompt | None:
    return _read_plain(fields.prompt, scope)


def _read_embedding(fields: _Body, scope: int) -> Prompt | None:
    if fields.messages is not None:
        return _read_chat(fields, scope)
    return _read_plain(fields.input, scope)


def _read_plain(raw: Raw, scope: int) -> Prompt | None:
    """Read a text, token ids, or the first of a list of either."""
    data = bytes(raw)
    if data[:1] == b'"':
        builder = PromptBuilder(scope)
        builder.add_open(b"text", read_text(data))
        return builder.build()
    if data[:1] != b"[":
        return None
    first = data[1:].lstrip()[:1]
    if first in (b'"', b"["):
        return _read_plain(_decode_raws(data)[0], scope)
    builder = PromptBuilder(scope, bytes_per_token=float(TOKEN_ID_BYTES))
    builder.add_open(b"ids", array("I", _decode_ids(data)).tobytes())
    return builder.build()


def _add_preamble(builder: PromptBuilder, fields: _Body) -> None:
    for tag, raw in (
        (b"template", fields.chat_template),
        (b"template-arguments", fields.chat_template_kwargs),
        (b"documents", fields.documents),
        (b"tools", fields.tools),
    ):
        if raw != _NONE and bytes(raw) != b"[]":
            builder.add(tag, bytes(raw))


def _add_messages(builder: PromptBuilder, messages: Iterable[_Message]) -> None:
    for builder.message, message in enumerate(messages):
        if message.content is not _NONE:
            add_content(builder, str(message.role or message.type).encode(), message.content)
        for field in (message.tool_calls, message.name, message.arguments, message.output):
            if field is not _NONE:
                builder.add(b"call", bytes(field))


SHAPES = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/embeddings": "embeddings",
}
"""Paths whose bodies are read. Everything else is routed by load, or by a session header."""

_READERS: dict[str, Callable[[_Body, int], Prompt | None]] = {
    "chat": _read_chat,
    "completions": _read_completion,
    "responses": _read_responses,
    "messages": _read_anthropic,
    "embeddings": _read_embedding,
}
