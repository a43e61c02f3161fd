"""The server side of one connection: HTTP/1.x parsing by llhttp, keep-alive and its limits as uvicorn has them."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from router.sim.faults import Fault
from router.sim.record import Arrival
from router.sim.reply import Reply, status_line

_CONTINUE = status_line(100) + b"\r\n"
_INVALID_TEXT = b"Invalid HTTP request received."
_INVALID = b"%bcontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (
    status_line(400),
    len(_INVALID_TEXT),
    _INVALID_TEXT,
)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER of no seconds: close() sends a reset in place of a proper end."""


class Ongoing(Protocol):
    """A request whose answer takes time."""

    def lost(self) -> None:
        """The connection is gone; nothing can be said any more."""


class Host(Protocol):
    """What a connection needs of its replica."""

    @property
    def keep_alive_s(self) -> float:
        """Idle connections are closed after this."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""

    def opened(self, connection: Connection) -> int:
        """Note a new connection; its serial number."""

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""

    def arriving(self, connection: int, method: str, target: str, headers: list[tuple[bytes, bytes]]) -> Arrival:
        """Note a request whose head is here."""

    def reuse_fault(self) -> Fault | None:
        """Return the fault that closes a connection which is about to be reused."""

    def serve(self, arrival: Arrival, connection: Connection, *, http10: bool, reuse: bool) -> Ongoing | None:
        """Answer a complete request; None: no one needs to hear when the client leaves."""

    def answered(self, arrival: Arrival) -> None:
        """Count an answer that went out whole."""

    def changed(self) -> None:
        """Something happened that someone may wait for."""


class _Parsed:
    """A request that is being read, or waits for its turn on a pipelined connection."""

    __slots__ = ("arrival", "body", "http10", "reuse")

    def __init__(self, arrival: Arrival, *, http10: bool, reuse: bool) -> None:
        self.arrival = arrival
        self.body: list[bytes] = []
        self.http10 = http10
        self.reuse = reuse


class Connection(asyncio.Protocol):
    """One accepted connection. Requests on it are answered one after the other, in order."""

    def __init__(self, host: Host) -> None:
        self.serial = 0
        self.answered = 0
        """Complete answers that went out on it."""
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._reading: _Parsed | None = None
        self._queue: deque[_Parsed] = deque()
        self._current: _Parsed | None = None
        self._ongoing: Ongoing | None = None
        self._reply: Reply | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """No request is being read, waits or is answered."""
        return self._current is None and self._reading is None and not self._queue

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports derive from nothing of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.serial = self._host.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_idle_timer()
        died_here = self._transport is None
        self._transport = None
        waiting = [parsed for parsed in (self._current, self._reading, *self._queue) if parsed is not None]
        for parsed in waiting:
            self._note_leaving(parsed, died_here)
        if self._reply is not None:
            self._reply.gone = True
        if self._ongoing is not None:
            self._ongoing.lost()
        self._current = self._reading = self._ongoing = self._reply = None
        self._queue.clear()
        self._host.closed(self)

    def data_received(self, data: bytes) -> None:
        self._stop_idle_timer()
        if self._transport is None:
            return
        if self.answered and self.idle and (fault := self._host.reuse_fault()) is not None:
            self.close(abort=fault.abort)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # As uvicorn without a websocket library: the request is served as a plain one.
        except httptools.HttpParserError:
            self.write(_INVALID)
            self.close(abort=False)

    # llhttp's callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        self._target = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is here."""
        parser = self._parser
        arrival = self._host.arriving(
            self.serial, parser.get_method().decode(), self._target.decode("latin-1"), self._headers
        )
        http10 = parser.get_http_version() == "1.0"
        self._reading = _Parsed(arrival, http10=http10, reuse=parser.should_keep_alive() and not http10)
        if not http10 and (arrival.header(b"expect") or b"").lower() == b"100-continue":
            self.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if self._reading is not None:
            self._reading.body.append(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        parsed, self._reading = self._reading, None
        if parsed is None:
            return
        parsed.arrival.body = b"".join(parsed.body)
        parsed.arrival.complete = True
        self._queue.append(parsed)
        self._serve_next()
        self._host.changed()

    # reply.Wire

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            self._host.changed()

    def close(self, *, abort: bool) -> None:
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if abort:
            # A round later, since uvloop sends what is written in this one at the end of it.
            self._host.loop.call_soon(_reset, transport)
        else:
            transport.close()

    def reply_done(self, *, reuse: bool) -> None:
        self.answered += 1
        if self._current is not None:
            self._host.answered(self._current.arrival)
        self._current = self._ongoing = self._reply = None
        if not reuse:
            self.close(abort=False)
        elif self._queue:
            self.soon(self._serve_next)
        elif self._reading is None and self._transport is not None:
            self._idle_timer = self._host.loop.call_later(self._host.keep_alive_s, self._close_idle)
        self._host.changed()

    def soon(self, callback: Callable[[], None], delay_s: float = 0.0) -> None:
        if delay_s:
            self._host.loop.call_later(delay_s, callback)
        else:
            self._host.loop.call_soon(callback)

    # Inside

    def attach(self, reply: Reply) -> None:
        """Tell this answer when the connection is gone."""
        self._reply = reply

    def _serve_next(self) -> None:
        if self._current is not None or not self._queue or self._transport is None:
            return
        parsed = self._current = self._queue.popleft()
        ongoing = self._host.serve(parsed.arrival, self, http10=parsed.http10, reuse=parsed.reuse)
        if self._current is parsed:
            self._ongoing = ongoing

    def _note_leaving(self, parsed: _Parsed, died_here: bool) -> None:
        arrival = parsed.arrival
        if not arrival.complete:
            arrival.body = b"".join(parsed.body)
        if not died_here:
            arrival.left_early = True
            arrival.left_s = self._host.loop.time()

    def _close_idle(self) -> None:
        self._idle_timer = None
        if self.idle:
            self.close(abort=False)

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


def _reset(transport: asyncio.Transport) -> None:
    known = transport.get_extra_info("socket")
    if known is not None and known.fileno() >= 0:
        # A duplicate, since neither asyncio's nor uvloop's view of the socket promises setsockopt; options are shared.
        with socket.socket(fileno=os.dup(known.fileno())) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
