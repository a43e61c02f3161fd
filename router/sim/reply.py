"""One answer on its way out: framing as uvicorn does it, bent by the faults taken for its request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from functools import lru_cache
from typing import Protocol

from router.sim.errors import phrase_of
from router.sim.faults import Fault, FaultKind, Taken
from router.sim.record import Arrival, Header

JSON_TYPE = b"application/json"
SSE_TYPE = b"text/event-stream; charset=utf-8"
_VARY: Header = (b"vary", b"Origin")
_BODYLESS = frozenset({204, 304})
_TRAILERS = b"x-sim-trailer: end\r\n"
_HINTS = b"link: </sim>; rel=preload\r\n"


class Wire(Protocol):
    """What an answer needs of the connection it goes out on."""

    def write(self, data: bytes) -> None:
        """Send these bytes, after all earlier ones."""

    def close(self, *, abort: bool) -> None:
        """End the connection from this side: reset it, or end it once all bytes are out."""

    def reply_done(self, *, reuse: bool) -> None:
        """The answer is complete; `reuse`: the connection may carry another one."""

    def soon(self, callback: Callable[[], None], delay_s: float = 0.0) -> None:
        """Call back in the next round of the event loop, or after `delay_s`."""


class Reply:
    """Takes one answer, whole (`sized`) or as a stream (`stream`, `event`..., `end`); ignores what comes later."""

    __slots__ = (
        "_after", "_chunked", "_die_after", "_flushing", "_held", "_http10", "_out", "_preface", "_reuse", "_sized",
        "_taken", "_wire", "arrival", "gone",
    )  # fmt: skip

    def __init__(
        self, wire: Wire, arrival: Arrival, taken: Taken, *, http10: bool, reuse: bool, preface: bytes
    ) -> None:
        self.arrival = arrival
        self.gone = False
        """The connection is no more."""
        self._wire = wire
        self._taken = taken
        self._http10 = http10
        self._reuse = reuse
        self._preface = preface
        self._out: list[bytes] = []
        self._after: Callable[[], None] | None = None
        self._flushing = False
        self._held = False
        self._chunked = False
        self._sized: list[bytes] | None = None
        self._die_after = taken.get(FaultKind.DIE_AFTER_CHUNKS)
        self._hold(taken.get(FaultKind.SLOW_HEADERS) or taken.get(FaultKind.SLOW_METRICS))

    @property
    def over(self) -> bool:
        """Nothing more can be said."""
        return self.gone or self._after is not None

    def sized(
        self, status: int, body: bytes, content_type: bytes = JSON_TYPE, headers: Iterable[Header] = (_VARY,)
    ) -> None:
        """Send a whole answer of known length."""
        if self.over:
            return
        if FaultKind.CHUNKED_JSON in self._taken and not self._http10:
            self._send_in_two(status, body, content_type, headers)
            return
        self._head(status, content_type if body else b"", headers, None if self._until_close else len(body))
        if status not in _BODYLESS and self.arrival.method != "HEAD":
            self._out.append(body if self._die_after is None else body[: len(body) // 2])
        self.arrival.chunks_sent = 1
        self._finish(self._die_after)

    def stream(self, content_type: bytes = SSE_TYPE, headers: Iterable[Header] = (_VARY,)) -> None:
        """Send the head of a 200 whose body comes in events."""
        if self.over:
            return
        if FaultKind.SIZED_STREAM in self._taken:
            self._sized = []
            return
        self._chunked = not (self._http10 or self._until_close)
        self._head(200, content_type, headers, None)
        if self._die_after is not None and not self._die_after.after_chunks:
            self._finish(self._die_after)
        else:
            self._flush_soon()

    def event(self, data: bytes) -> None:
        """Send one event as a chunk of its own."""
        if self.over:
            return
        self.arrival.chunks_sent += 1
        if self._sized is not None:
            self._sized.append(data)
            return
        self._out.append(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if self._die_after is not None and self.arrival.chunks_sent >= self._die_after.after_chunks:
            self._finish(self._die_after)
        else:
            self._flush_soon()

    def end(self) -> None:
        """End the stream properly."""
        if self.over:
            return
        if self._sized is not None:
            body, self._sized = b"".join(self._sized), None
            chunks = self.arrival.chunks_sent
            self.sized(200, body, SSE_TYPE)
            self.arrival.chunks_sent = chunks
            return
        if self._chunked:
            trailers = _TRAILERS if FaultKind.TRAILERS in self._taken else b""
            self._out.append(b"0\r\n%b\r\n" % trailers)
        self._finish(None)

    def drop(self) -> None:
        """Close the connection in the middle of the answer."""
        if not self.over:
            self._finish(Fault(FaultKind.DIE_AFTER_CHUNKS, abort=False))

    @property
    def _until_close(self) -> bool:
        return FaultKind.CLOSE_DELIMITED in self._taken

    def _send_in_two(self, status: int, body: bytes, content_type: bytes, headers: Iterable[Header]) -> None:
        self._chunked = True
        self._head(status, content_type, headers, None)
        middle = len(body) // 2
        for part in (body[:middle], body[middle:]):
            if part:
                self.event(part)
        self.end()

    def _head(self, status: int, content_type: bytes, headers: Iterable[Header], length: int | None) -> None:
        self.arrival.status = status
        lines = [self._interim(), status_line(status), self._preface]
        if length is not None and status not in _BODYLESS:
            lines.append(b"content-length: %d\r\n" % length)
        if content_type:
            lines.append(b"content-type: %b\r\n" % content_type)
        lines.extend(b"%b: %b\r\n" % header for header in headers)
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
            if FaultKind.TRAILERS in self._taken:
                lines.append(b"trailer: x-sim-trailer\r\n")
        elif length is None:
            self._reuse = False
        if not self._reuse:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._out.extend(lines)

    def _interim(self) -> bytes:
        fault = self._taken.get(FaultKind.INTERIM)
        if fault is None or self._http10:
            return b""
        status = fault.status if fault.status < 200 else 103
        return status_line(status) + (_HINTS if status == 103 else b"") + b"\r\n"

    def _hold(self, slow: Fault | None) -> None:
        if slow is not None:
            self._held = True
            self._wire.soon(self._release, slow.delay_s)

    def _release(self) -> None:
        self._held = False
        self._flush()

    def _finish(self, fault: Fault | None) -> None:
        self._after = self._done if fault is None else lambda: self._wire.close(abort=fault.abort)
        self._flush()

    def _done(self) -> None:
        self.arrival.ended = True
        self._wire.reply_done(reuse=self._reuse)

    def _flush_soon(self) -> None:
        """Join what is said in one round of the event loop, so that it costs one system call."""
        if not self._flushing:
            self._flushing = True
            self._wire.soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._held or self.gone:
            return
        if self._out:
            data, self._out = b"".join(self._out), []
            self._wire.write(data)
        if self._after is not None:
            after, self.gone = self._after, True
            after()


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """Return the first line of an answer."""
    return f"HTTP/1.1 {status} {phrase_of(status)}\r\n".encode()


def server_headers() -> bytes:
    """Return the header lines that uvicorn puts first."""
    return _server_headers(int(time.time()))


@lru_cache(maxsize=2)
def _server_headers(unix_s: int) -> bytes:
    return f"date: {formatdate(unix_s, usegmt=True)}\r\nserver: uvicorn\r\n".encode()
