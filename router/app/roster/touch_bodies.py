"""From a session's last request to one that renews its blocks: the same prompt, and one token."""

from __future__ import annotations

import msgspec

from router.proxy.openai import SHAPES, read_request

Raw = msgspec.Raw
Fields = dict[str, Raw]

LARGEST_BODY_BYTES = 2 << 20
"""Larger requests are not taken apart, which would hold every stream up for milliseconds: 500,000 tokens."""

LAST = Raw(b"1000000")
"""In place of a client's `priority`, where vLLM schedules by it: everybody else goes first."""

_PROMPT = (
    "model",
    "messages",
    "prompt",
    "input",
    "instructions",
    "system",
    "tools",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "reasoning",
    "add_special_tokens",
    "add_generation_prompt",
    "continue_final_message",
    "truncate_prompt_tokens",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "cache_salt",
)
"""Fields that an engine makes the prompt and the identity of its blocks from."""

_ELSEWHERE = ("previous_response_id", "conversation")
"""Such a prompt is not in the body alone."""

_TOKEN, _FALSE, _NONE, _NULL = Raw(b"1"), Raw(b"false"), b'"none"', b"null"
_OWN: dict[str, Fields] = {
    "chat": {"max_tokens": _TOKEN, "stream": _FALSE},
    "completions": {"max_tokens": _TOKEN, "stream": _FALSE},
    "messages": {"max_tokens": _TOKEN, "stream": _FALSE},
    "responses": {"max_output_tokens": _TOKEN, "stream": _FALSE, "store": _FALSE},
}
_decode = msgspec.json.Decoder(Fields).decode


def is_session(path: str, body: bytes) -> bool:
    """Tell whether requests of this path are turns of sessions, and this one is not too large to be taken apart."""
    return SHAPES.get(path) in _OWN and len(body) <= LARGEST_BODY_BYTES


def touch_body(path: str, body: bytes, session: int) -> bytes | None:
    """Return what renews the blocks of a request's prompt; None where that can't be told from the body.

    `session`: hash of the prompt's last block, which the new body's must have as well.
    """
    try:
        fields = _decode(body)
        own = _OWN[SHAPES[path]]
    except (msgspec.MsgspecError, KeyError, RecursionError):
        return None
    if any(_is_set(fields, name) for name in _ELSEWHERE):
        return None
    wanted = {name: fields[name] for name in _PROMPT if name in fields} | own
    if bytes(fields.get("tool_choice", b"")) == _NONE:
        wanted["tool_choice"] = fields["tool_choice"]  # vLLM may leave the tools out of such a prompt
    if _is_set(fields, "priority"):
        wanted["priority"] = LAST
    built = b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), bytes(raw)) for name, raw in wanted.items())
    prompt = read_request(path, built, None).prompt
    return built if prompt is not None and prompt.hashes[-1] == session else None


def _is_set(fields: Fields, name: str) -> bool:
    return name in fields and bytes(fields[name]) != _NULL
