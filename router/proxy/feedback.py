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

USAGE_BYTES = 1_024
"""How long a usage object with all its details is at the most; vLLM's has 250 bytes."""

_COUNT = re.compile(
    rb'"(prompt|input|cached|cache_read_input|cache_creation_input|completion|output)_tokens"\s*:\s*(\d+)',
)
_FINISH = re.compile(rb'"(?:finish|stop)_reason"\s*:\s*"(\w+)"')
_RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp_[^"\\]{1,200})"')
_ENGINE_ERROR = re.compile(rb'^\s*(?:event: error\s+)?data: \{\s*"(?:error"|type"\s*:\s*"error")')

SHUT_DOWN = b"cannot schedule new futures after shutdown"
"""In the body of the 500 that a vLLM gives while it shuts down: no work was done, another replica can do it."""


def read_usage(first: bytes, tail: bytes) -> Usage:
    """Return what an answer's end says, and where that does not speak of cached tokens, its `first` bytes."""
    text = tail[-TAIL_BYTES:]
    counts = _last_counts(text)
    if b"cached" not in counts and b"cache_read_input" not in counts and first:
        counts = _last_counts(first) | counts  # Anthropic's streams report their input at the start
    prompt = counts.get(b"prompt", counts.get(b"input"))
    if prompt is not None and b"cache_read_input" in counts:
        # Anthropic's form counts what was read from and written to the cache apart.
        prompt += counts[b"cache_read_input"] + counts.get(b"cache_creation_input", 0)
    return Usage(
        prompt,
        counts.get(b"cached", counts.get(b"cache_read_input")),
        counts.get(b"completion", counts.get(b"output")),
        _last_finish(text),
    )


def _last_counts(text: bytes) -> dict[bytes, int]:
    at = text.rfind(b'"usage"')
    return {} if at < 0 else {name: int(count) for name, count in _COUNT.findall(text[at : at + USAGE_BYTES])}


def _last_finish(text: bytes) -> str | None:
    at = max(text.rfind(b'"finish_reason"'), text.rfind(b'"stop_reason":"'))
    found = _FINISH.search(text, at) if at >= 0 else None
    return None if found is None else found[1].decode()


def response_id(data: bytes) -> str | None:
    """Return the id of a stored response from the beginning of an answer."""
    match = _RESPONSE_ID.search(data)
    return None if match is None else match[1].decode("utf-8", "replace")


def is_engine_error(event: bytes) -> bool:
    """Tell whether the first bytes of a stream are the engine's report of its own death."""
    return _ENGINE_ERROR.match(event) is not None


def ends_in_engine_error(tail: bytes) -> bool:
    """Tell whether a stream's end reports the engine's death: vLLM closes such a stream properly."""
    text = tail[-TAIL_BYTES:]
    return b'\ndata: {"error":' in text or b"\nevent: error\n" in text
