"""A stream that was begun by the router, with comments, before its replica answered: proxies in between keep it open.

The status 200 is out, so what comes later must be said in events.
"""

from __future__ import annotations

import asyncio

from router.proxy.answer import Answer
from router.proxy.headers import answer_head
from router.proxy.relay import LAST_CHUNK, Dechunker, Write, as_chunk
from router.proxy.upstream import Framing

COMMENT = as_chunk(b": waiting\n\n")
"""A line that begins with a colon is a comment in server-sent events, which every client passes over."""

MAX_WRAPPED_BYTES = 1 << 20
"""Of an answer that is no stream, and has to be sent as an event. vLLM's errors are under 1 kB; a longer answer is not
kept."""

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class EarlyStream:
    """The client's side of such a stream."""

    STATUS = 200

    def __init__(self, transport: asyncio.Transport, path: str, own_lines: bytes, close: bool) -> None:
        """`own_lines`: the router's header lines; `close`: whether the connection ends with the stream."""
        self._raw = transport.write
        self._path = path
        self._head = answer_head(self.STATUS, _HEADERS, b"transfer-encoding: chunked\r\n", own_lines, close=close)
        self._last_s = float("-inf")
        self._passes_raw = False
        self._wrapped: bytes | None = None
        self._wrapped_error = False

    def keep_open(self, now: float, interval_s: float) -> None:
        """Write a comment, if the last one was an interval ago."""
        if now - self._last_s >= interval_s:
            head, self._head = self._head, b""
            self._raw(head + COMMENT)
            self._last_s = now

    def go_on(self, answer: Answer, data: bytes) -> Write:
        """Go on with a replica's answer; return how the rest of it is written."""
        self._passes_raw = chunked = answer.framing is Framing.CHUNKED
        if not answer.streams_events or answer.status != self.STATUS:
            self._wrapped, self._passes_raw, self._wrapped_error = b"", False, answer.status >= 400
            write: Write = Dechunker(self._wrap) if chunked else self._wrap
        else:
            write = self._raw if chunked else self._write_chunk
        if data:
            write(data)
        return write

    def _write_chunk(self, data: bytes) -> None:
        self._raw(as_chunk(data))

    def _wrap(self, data: bytes) -> None:
        if self._wrapped is not None and len(self._wrapped) < MAX_WRAPPED_BYTES:
            self._wrapped += data

    def end(self) -> None:
        """End the stream, now that its answer has ended as it announced."""
        if self._wrapped is not None:
            named = self._wrapped_error and self._path.startswith(("/v1/messages", "/v1/responses"))
            name = b"event: error\n" if named else b""
            self._write_chunk(b"%bdata: %b\n\n" % (name, b" ".join(self._wrapped.split(b"\n"))))
        if not self._passes_raw:
            self._raw(LAST_CHUNK)

    def cut(self, event: bytes, between_chunks: bool) -> None:
        """Write a last event; nothing ends the body. `between_chunks`: what was passed on ends with a chunk."""
        if between_chunks or not self._passes_raw:
            self._write_chunk(event)
