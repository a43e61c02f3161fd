"""One attempt's answer: what its head said, what of its body has gone by, and what its end tells."""

from __future__ import annotations

from collections import deque

from router.core.types import Outcome, OutcomeKind, Usage
from router.proxy import feedback
from router.proxy.headers import Headers, first_values
from router.proxy.upstream import Framing

TAIL_SEGMENTS = 6
"""Reads kept for `feedback`: the last content, usage and [DONE] events come in three reads at most, then the end."""

PREAMBLES = (b":", b"event: response.created", b"event: response.in_progress")
"""vLLM sends comments to keep connections alive where it is told to, and announces a response before it works on it."""

_NO_USAGE = Usage()


class Answer:
    """An engine's answer as it passes through."""

    __slots__ = ("fields", "first", "framing", "headers", "status", "streams_events", "tail")

    def __init__(self, status: int, headers: Headers, framing: Framing) -> None:
        self.status = status
        self.headers = headers
        self.framing = framing
        self.fields = fields = first_values(headers)
        self.streams_events = fields.get(b"content-type", b"").startswith(b"text/event-stream")
        """Whether the body is a stream of server-sent events."""
        self.first = b""
        """The first bytes of the body, framing included."""
        self.tail: deque[bytes] = deque(maxlen=TAIL_SEGMENTS)

    def begin(self, data: bytes) -> None:
        """Note the first bytes of the body."""
        self.first = data
        self.tail.append(data)

    def content(self, data: bytes) -> bytes:
        """Return `data` from the beginning of its first chunk's content, where it begins with a chunk."""
        return data.partition(b"\r\n")[2] if self.framing is Framing.CHUNKED else data

    def is_preamble(self, data: bytes) -> bool:
        """Tell whether `data` is what an engine streams before it prefills: a comment, or a response's creation."""
        return self.streams_events and self.content(data).startswith(PREAMBLES)

    def is_engine_error(self, data: bytes) -> bool:
        """Tell whether the body's first bytes are the engine's report of its own death."""
        return self.streams_events and feedback.is_engine_error(self.content(data))

    @property
    def between_events(self) -> bool:
        """Tell whether the bytes so far end at a chunk's end: vLLM sends one event a chunk."""
        return bool(self.tail) and self.tail[-1].endswith(b"\n\n\r\n")

    @property
    def lacks_retry_after(self) -> bool:
        """Tell whether the engine pushes back without saying for how long, as vLLM does."""
        return self.status in (429, 503) and b"retry-after" not in self.fields

    def usage(self) -> Usage:
        """Return what the bytes so far say of tokens."""
        return feedback.read_usage(self.first, b"".join(self.tail)) if self.status < 400 else _NO_USAGE

    def outcome(self) -> Outcome:
        """Return the outcome of an answer that has ended as it announced."""
        retry_after = self.fields.get(b"retry-after")
        seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
        return Outcome(self._kind(), self.status, self.usage(), seconds)

    def _kind(self) -> OutcomeKind:
        if self.status in (429, 503):
            return OutcomeKind.BUSY
        if self.status >= 500:
            return OutcomeKind.ERRORED
        if self.streams_events and feedback.ends_in_engine_error(b"".join(self.tail)):
            return OutcomeKind.DIED
        return OutcomeKind.COMPLETED
