"""What the end of an answer says about its cost: usage and finish reason, read after the bytes were sent on.

JSON strings hold quotes only behind a backslash, so a quoted field name followed by a colon can't come from a model's
text: the last bytes of an answer can be searched without parsing it.
"""

from __future__ import annotations

import re

from router.core.types import Usage

TAIL_BYTES = 16_384
"""How much of an answer's end is searched: usage and the last event of a stream take under 2 kB; log probabilities of
the last chunk may stand before them."""

_PROMPT = re.compile(rb'"(?:prompt_tokens|input_tokens)"\s*:\s*(\d+)')
_CACHED = re.compile(rb'"(?:cached_tokens|cache_read_input_tokens)"\s*:\s*(\d+)')
_COMPLETION = re.compile(rb'"(?:completion_tokens|output_tokens)"\s*:\s*(\d+)')
_FINISH = re.compile(rb'"(?:finish_reason|stop_reason)"\s*:\s*"(\w+)"')
_RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp_[^"\\]{1,200})"')
_ENGINE_ERROR = re.compile(rb'^\s*(?:event: error\s+)?data: \{\s*"(?:error"|type"\s*:\s*"error")')

SHUT_DOWN = b"cannot schedule new futures after shutdown"
"""In the body of the 500 that a vLLM gives while it shuts down: no work was done, another replica can do it."""


def read_usage(first: bytes, tail: bytes) -> Usage:
    """Return what the `first` and the last bytes of an answer say; the last mention of a field wins."""
    text = tail[-TAIL_BYTES:]
    finish = _last(_FINISH, text)
    return Usage(
        _number(_PROMPT, text, first),
        _number(_CACHED, text, first),
        _number(_COMPLETION, text, first),
        None if finish is None else finish.decode(),
    )


def response_id(data: bytes) -> str | None:
    """Return the id of a stored response from the beginning of an answer."""
    match = _RESPONSE_ID.search(data)
    return None if match is None else match[1].decode("utf-8", "replace")


def is_engine_error(event: bytes) -> bool:
    """Tell whether the first bytes of a stream are the engine's report of its own death."""
    return _ENGINE_ERROR.match(event) is not None


def ends_in_engine_error(tail: bytes) -> bool:
    """Tell whether a stream's end reports the engine's death: vLLM closes such a stream properly."""
    return b'\ndata: {"error":' in tail[-TAIL_BYTES:]


def _last(pattern: re.Pattern[bytes], text: bytes) -> bytes | None:
    found = pattern.findall(text)
    return found[-1] if found else None


def _number(pattern: re.Pattern[bytes], text: bytes, first: bytes) -> int | None:
    found = _last(pattern, text)
    if found is None and first:
        found = _last(pattern, first)
    return None if found is None else int(found)
