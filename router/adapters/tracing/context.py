"""Where a trace comes from and how it goes on: the headers of W3C's Trace Context (www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import getrandbits
from typing import NamedTuple

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_INVALID_VERSION = b"ff"
_SAMPLED = 0x01
_KNOWN_FLAGS = 0x03
"""Sampled, and random trace id; others are to be sent on as 0."""
_TRACE_ID_BITS = 128
_SPAN_ID_BITS = 64
_RATIO_BITS = 64
"""As many low bits of a trace id decide whether it is sampled, as in OpenTelemetry's TraceIdRatioBased."""


class Origin(NamedTuple):
    """The trace that a request belongs to."""

    trace_id: int
    parent_id: int | None
    """The client's span; None where the trace begins here."""
    flags: int
    state: bytes
    """The client's tracestate; empty where there is none."""

    @property
    def sampled(self) -> bool:
        """Whether spans are made."""
        return self.flags & _SAMPLED != 0

    def lines(self, span_id: int) -> bytes:
        """Return the header lines that continue the trace below a span."""
        line = b"traceparent: 00-%032x-%016x-%02x\r\n" % (self.trace_id, span_id, self.flags)
        return line + b"tracestate: %b\r\n" % self.state if self.state else line


def origin(headers: Sequence[tuple[bytes, bytes]], ratio: float) -> Origin:
    """Return the trace that these headers continue; a new one, sampled with this chance, where they name none.

    `headers`: traceparent and tracestate as they came, others not among them.
    """
    parents = [value for name, value in headers if name == b"traceparent"]
    read = _read(parents[0]) if len(parents) == 1 else None
    if read is None:
        return _new(ratio)
    trace_id, parent_id, flags = read
    states = [value for name, value in headers if name == b"tracestate" and value]
    return Origin(trace_id, parent_id, flags & _KNOWN_FLAGS, b",".join(states))


def _read(traceparent: bytes) -> tuple[int, int, int] | None:
    """Return trace id, parent id and flags; None for what is malformed. Later versions may have more fields."""
    found = _TRACEPARENT.fullmatch(traceparent.strip(b" \t"))
    if found is None:
        return None
    version, trace_id, parent_id, flags, rest = found.groups()
    if version == _INVALID_VERSION or (version == b"00" and rest is not None):
        return None
    read = int(trace_id, 16), int(parent_id, 16), int(flags, 16)
    return read if read[0] and read[1] else None


def _new(ratio: float) -> Origin:
    trace_id = getrandbits(_TRACE_ID_BITS) or 1
    low_bits = trace_id & ((1 << _RATIO_BITS) - 1)
    return Origin(trace_id, None, _SAMPLED if low_bits < ratio * (1 << _RATIO_BITS) else 0, b"")


def new_span_id() -> int:
    """Return a random span id; 0 is none."""
    return getrandbits(_SPAN_ID_BITS) or 1
