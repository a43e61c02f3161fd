"""One connection to a replica. llhttp follows the answer to know where it ends; its bytes go on as they came."""

from __future__ import annotations

import asyncio
import re
from enum import Enum
from typing import Protocol, cast

import httptools

from router.proxy.headers import Headers, find

MAX_HEAD_BYTES = 65_536
"""A larger head is no answer of an inference engine (uvicorn limits a request's head to the same size)."""

PIECE_BYTES = 1 << 18
"""Written at a time: some 50 microseconds of copying into the kernel."""

_BODILESS = frozenset({204, 304})

_CHUNKS_END = re.compile(rb"[^\r\n]\r\n\r\n\Z")
"""The last chunk's size, or the last trailer, ends a line; an empty one follows, and nothing after it."""


class Framing(Enum):
    """How the end of an answer's body is known."""

    NONE = "none"
    SIZED = "sized"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until-close"


class Listener(Protocol):
    """Who waits for the answer on a connection."""

    def answer_head(self, status: int, headers: Headers, framing: Framing) -> None:
        """The head of the answer is complete; 1xx heads are passed over."""

    def answer_bytes(self, data: bytes) -> None:
        """More of the body has come, framed as announced."""

    def answer_complete(self) -> None:
        """The answer ended as announced. The connection is in the pool again, or closed."""

    def answer_lost(self, error: Exception | None, began: bool) -> None:
        """The answer will not be completed; `began`: some bytes of it had come."""


class Home(Protocol):
    """Where a connection goes when it is idle."""

    def put(self, connection: UpstreamConnection) -> None:
        """Take an idle connection."""

    def discard(self, connection: UpstreamConnection) -> None:
        """Forget a connection that is closed."""


class UpstreamConnection(asyncio.Protocol):
    """Carries one request at a time to one replica.

    There is no `on_body`: without it the parser makes no copies of the body.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._listener: Listener | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._expects_no_body = False
        self._head: bytes | None = None
        self._write_paused = False
        self._reset()
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.answers = 0
        """Answers completed on this connection."""
        self.idle_since_s = 0.0

    def _reset(self) -> None:
        self._headers: Headers = []
        self._headers_complete = False
        self._interim_heads = 0
        self._complete = False
        self._surplus = False
        self._body_bytes = 0
        self._last_read = b""
        self._unsent: memoryview | bytes = b""
        self._reusable = False
        self._framing = Framing.NONE

    @property
    def usable(self) -> bool:
        """Tell whether a request may be sent on it."""
        return self._listener is None and not self.transport.is_closing()

    def start(self, listener: Listener, head: bytes, body: bytes, expects_no_body: bool) -> None:
        """Send a request; `expects_no_body` for HEAD, whose answer has a body's headers and no body."""
        self._listener = listener
        self._expects_no_body = expects_no_body
        self._head = b""
        self._reset()
        if len(body) <= PIECE_BYTES:
            self.transport.writelines((head, body))
        else:
            self._unsent = memoryview(body)
            self.transport.write(head)
            self._send_pieces()

    def _send_pieces(self) -> None:
        """Send a large body piece by piece, as the engine takes it, so that other connections get their turn."""
        while self._unsent and not self._write_paused:
            piece, self._unsent = self._unsent[:PIECE_BYTES], self._unsent[PIECE_BYTES:]
            self.transport.write(piece)

    def abandon(self) -> None:
        """Close at once; the listener is told nothing more. The engine sees its client leave and aborts the work."""
        self._listener = None
        self._unsent = b""
        self.transport.abort()

    def pause(self) -> None:
        """Stop reading: the answer waits in the kernel, and then in the engine."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._send_pieces()

    def data_received(self, data: bytes) -> None:
        if self._listener is None:
            self.transport.abort()  # bytes nobody asked for: the connection can't be trusted any more
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(error)
            return
        if self._surplus:
            self._fail(ValueError("bytes after the end of the answer"))
        elif self._head is not None:
            self._head_received(data)
        elif self._complete:
            self._last_bytes(data)
        else:
            self._body_bytes += len(data)
            self._last_read = data if len(data) > 4 else self._last_read[-4:] + data
            self._listener.answer_bytes(data)

    def _last_bytes(self, data: bytes) -> None:
        listener = self._listener
        if self._goes_on_behind(data):
            self._fail(ValueError("empty lines after the end of the answer"))
        elif listener is not None:
            if data and self._framing is not Framing.NONE:
                listener.answer_bytes(data)
            if self._listener is listener:
                self._finish()

    def _goes_on_behind(self, data: bytes) -> bool:
        """Tell whether the read that completes the body has bytes behind its end.

        Another answer there is noticed by its beginning. Empty lines are not: the parser passes over them.
        """
        if self._framing is Framing.SIZED:
            return self._body_bytes + len(data) > int(find(self._headers, b"content-length") or b"0")
        if self._framing is Framing.CHUNKED:
            return not _CHUNKS_END.search(self._last_read[-4:] + data[-5:])
        return data != b"" and not self._expects_no_body

    def _head_received(self, data: bytes) -> None:
        self._head = head = (self._head or b"") + data
        if not self._headers_complete:
            if len(head) > MAX_HEAD_BYTES:
                self._fail(ValueError("the answer's head is too large"))
            return
        self._head = None
        start = 0
        for _ in range(self._interim_heads + 1):
            if head[start] in b"\r\n":
                self._fail(ValueError("empty lines in front of the answer"))  # the parser passes over them
                return
            start = head.index(b"\r\n\r\n", start) + 4
        body = head[start:]
        listener = self._listener
        if listener is None:
            return
        listener.answer_head(self._parser.get_status_code(), self._headers, self._framing)
        if self._listener is not listener:
            return
        if self._complete:
            self._last_bytes(body)
        elif body:
            self._body_bytes, self._last_read = len(body), body
            listener.answer_bytes(body)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._home.discard(self)
        self._unsent = b""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        if exc is None and self._framing is Framing.UNTIL_CLOSE and self._head is None:
            listener.answer_complete()
        else:
            listener.answer_lost(exc, began=self._head != b"")

    def _finish(self) -> None:
        listener, self._listener = self._listener, None
        self.answers += 1
        if self._reusable and not self._unsent and not self.transport.is_closing():
            self._home.put(self)
        else:
            self.transport.close()
        if listener is not None:
            listener.answer_complete()

    def _fail(self, error: Exception) -> None:
        listener, self._listener = self._listener, None
        self._unsent = b""
        self.transport.abort()
        if listener is not None:
            listener.answer_lost(error, began=True)

    # llhttp's side

    def on_message_begin(self) -> None:
        self._surplus = self._complete

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headers_complete:  # trailers come by here as well
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = []
            self._interim_heads += 1
            return
        self._headers_complete = True
        if self._expects_no_body:
            self._complete = True  # the parser waits for a body that will not come: this connection ends here
        elif status in _BODILESS:
            self._framing = Framing.NONE
        elif codings := [value for name, value in self._headers if name == b"transfer-encoding"]:
            if [coding.rstrip(b" ").lower() for coding in codings] != [b"chunked"]:
                raise ValueError("a transfer coding that was not asked for")  # RFC 9112 section 7.4
            self._framing = Framing.CHUNKED
        elif find(self._headers, b"content-length") is not None:
            self._framing = Framing.SIZED
        else:
            self._framing = Framing.UNTIL_CLOSE

    def on_message_complete(self) -> None:
        if self._headers_complete:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()
