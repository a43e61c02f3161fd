"""From a client's request to one that warms a replica for all that begin alike: no user's message is in it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from router.core.types import RoutingRequest
from router.core.warmth import Opening
from router.proxy.openai import read_request

Raw = msgspec.Raw
Fields = dict[str, Raw]

MAX_BYTES = 1 << 20
"""The largest text that is kept: about 250,000 tokens."""

_SHAPING = (
    "model",
    "tools",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "add_special_tokens",
)
"""Fields that a chat template turns into the beginning of a prompt."""

_OPERATOR = frozenset({"system", "developer"})
_USER = Raw(b'{"role":"user","content":"."}')
_NONE = Raw(b'"none"')
_TOKEN = Raw(b"1")
_FALSE = Raw(b"false")


class _Role(msgspec.Struct):
    role: str = ""


_decode_fields = msgspec.json.Decoder(Fields).decode
_decode_raws = msgspec.json.Decoder(list[Raw]).decode
_decode_role = msgspec.json.Decoder(_Role).decode


def opening_of(request: RoutingRequest, body: bytes) -> Opening | None:
    """Return what warms a replica for requests that begin as this one does; None where nothing would, or may.

    `request` is `body` as routing reads it. Requests with a cache_salt want to share with nobody, stored responses
    begin with what one replica alone knows.
    """
    try:
        fields = _decode_fields(body)
        if any(_is_set(fields, name) for name in ("cache_salt", "previous_response_id", "conversation")):
            return None
        path, wanted = _PARTS[request.shape](fields)
    except (msgspec.MsgspecError, ValueError, KeyError, RecursionError):
        return None
    built = b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), bytes(raw)) for name, raw in wanted.items())
    read = read_request(path, built, None)
    if read.prompt is not None and read.prompt.parts is not None:
        read.prompt.parts.clear()  # it is kept, and its text once is enough
    return Opening(path, built, read) if len(built) <= MAX_BYTES and _begins_alike(request, read) else None


def _begins_alike(request: RoutingRequest, built: RoutingRequest) -> bool:
    wanted, found = request.prompt, built.prompt
    if wanted is None or found is None or not 0 < wanted.opening_blocks == found.opening_blocks:
        return False
    last = wanted.opening_blocks - 1
    return found.hashes[last] == wanted.hashes[last]


def _is_set(fields: Fields, name: str) -> bool:
    return name in fields and bytes(fields[name]) != b"null"


def _shaping(fields: Fields) -> Fields:
    kept = {name: fields[name] for name in _SHAPING if name in fields}
    if bytes(fields.get("tool_choice", b"")) == bytes(_NONE):
        kept["tool_choice"] = _NONE  # vLLM may leave the tools out of such a prompt
    return kept


def _led_by_operator(messages: Raw) -> Raw:
    """Return a list of the messages before the first that is not the operator's, and one of a user's."""
    leading = []
    for message in _decode_raws(messages):
        if _decode_role(message).role not in _OPERATOR:
            break
        leading.append(message)
    return _listed([*leading, _USER])


def _listed(messages: Iterable[Raw]) -> Raw:
    return Raw(b"[%b]" % b",".join(map(bytes, messages)))


def _chat(fields: Fields) -> tuple[str, Fields]:
    own = {"messages": _led_by_operator(fields["messages"]), "max_tokens": _TOKEN, "stream": _FALSE}
    return "/v1/chat/completions", _shaping(fields) | own


def _anthropic(fields: Fields) -> tuple[str, Fields]:
    system = {"system": fields["system"]} if "system" in fields else {}
    own = {"messages": _listed([_USER]), "max_tokens": _TOKEN, "stream": _FALSE}
    return "/v1/messages", _shaping(fields) | system | own


def _responses(fields: Fields) -> tuple[str, Fields]:
    given = fields["input"]
    messages = _led_by_operator(given) if bytes(given)[:1] == b"[" else _listed([_USER])
    instructions = {"instructions": fields["instructions"]} if "instructions" in fields else {}
    own = {"input": messages, "max_output_tokens": _TOKEN, "stream": _FALSE, "store": _FALSE}
    return "/v1/responses", _shaping(fields) | instructions | own


_PARTS = {"chat": _chat, "messages": _anthropic, "responses": _responses}
"""By shape. Completions and embeddings have no operator's part."""
