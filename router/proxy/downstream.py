"""The client's side: uvicorn's HTTP protocol, with inference requests answered in the protocol itself.

uvicorn keeps the server (sockets, TLS, signals, graceful stop) and everything that is not proxied. Its pipeline of
cycles orders both kinds on one connection.
"""

from __future__ import annotations

from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.proxy.client import Answered
from router.proxy.errors import RouterError
from router.proxy.exchange import Exchange
from router.proxy.headers import Headers, find
from router.proxy.incoming import Incoming
from router.proxy.plane import Plane

ENGINE_PATHS = frozenset(
    {
        "/tokenize",
        "/detokenize",
        "/invocations",
        "/generative_scoring",
        "/pooling",
        "/classify",
        "/score",
        "/rerank",
        "/v2/rerank",
        "/v2/embed",
        "/version",
        "/render",
        "/derender",
    }
)
"""An engine's inference paths outside /v1/. Its development and administration paths (/sleep, /reset_prefix_cache,
/metrics, ...) are not for clients of a fleet."""

ENGINE_PREFIXES = ("/v1/", "/inference/")

LINGER_S = 2.0
"""How long a connection whose request was refused early is read on and discarded: closing it with unread bytes makes
the kernel reset it, and the client may never see the answer."""

MAX_PIPELINED = 8
"""Requests read ahead on one connection before reading stops. Until then a client that leaves is noticed at once."""


def is_proxied(method: bytes, path: str) -> bool:
    """Tell whether a request goes to an engine; everything else is answered by the router's own application."""
    if path == "/v1/models":
        return method not in (b"GET", b"HEAD")
    if path not in ENGINE_PATHS and not path.startswith(ENGINE_PREFIXES):
        return False
    return "/../" not in path and "/./" not in path and not path.endswith(("/..", "/."))


def origin_form(target: bytes) -> bytes:
    """Return path and query of a request target.

    Raises httptools.HttpParserError for what is no URL.
    """
    if target[:1] == b"/" and target[:2] != b"//" and b"#" not in target:
        return target
    url = httptools.parse_url(target)
    return url.path if url.query is None else b"%b?%b" % (url.path, url.query)


def body_framing(headers: Headers) -> bytes:
    """Return the header line that frames a request's body; empty where it has none."""
    if find(headers, b"transfer-encoding") is not None:
        return b"transfer-encoding: chunked"
    length = find(headers, b"content-length")
    return b"" if length in (None, b"0") else b"content-length: %b" % length


class Downstream(HttpToolsProtocol):
    """One client connection. `plane` is set by `downstream_class`."""

    plane: Plane

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._active: Exchange | None = None
        self._broken: Exchange | None = None
        self._discarding = False
        self._skipped_body = b""
        self._head_is_known = False
        self._idle_since_s = 0.0

    # uvicorn's and asyncio's side

    def connection_lost(self, exc: Exception | None) -> None:
        self.plane.idle.discard(self)
        active, self._active = self._active, None
        if active is not None:
            active.client_left()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self.plane.idle.discard(self)
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as paused:
            self._go_on_without_upgrade(data[paused.args[0] :])
        except httptools.HttpParserError as error:
            self.send_400_response(str(error))

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Read on as if no upgrade had been asked for: the parser stops there, in front of the request's body too.

        Java's HTTP client asks http:// servers for h2c with its first request, body and all.
        """
        framing, self._skipped_body = self._skipped_body, b""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        if framing:
            self._head_is_known = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        if rest:
            self.data_received(rest)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._active is not None:
            self._active.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._active is not None:
            self._active.resume()

    @property
    def write_paused(self) -> bool:
        """Whether the client takes its bytes too slowly."""
        return self.flow.write_paused

    def shutdown(self) -> None:
        if self._active is not None:
            self._active.keep_alive = False
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no HTTP, in the form of the API's other errors, once all before them is answered."""
        self._discarding = True
        last: Any = self.cycle
        if last is None or last.response_complete:
            exchange = Exchange(self.plane, self, Incoming(b"GET", b"/", "/", [], http_1_0=False), keep_alive=False)
            exchange.fail(RouterError.BAD_REQUEST)
        elif not isinstance(last, Exchange) or last.incoming.complete:
            last.keep_alive = False  # its own answer comes first; then the connection ends
        elif last is self._active:
            last.fail(RouterError.BAD_REQUEST)
        else:
            self._broken = last

    # llhttp's side

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def _make_scope(self) -> None:
        """Do what uvicorn does when a message begins: only its own requests need a scope."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)

    def on_headers_complete(self) -> None:
        if self._head_is_known or self._discarding or self.transport.is_closing():
            self._head_is_known = False
            return  # a head made up for the parser; or a request behind the last one that is answered here
        if self.parser.should_upgrade():
            self._skipped_body = body_framing(self.headers)
        method = self.parser.get_method()
        target = origin_form(self.url)
        path = target.partition(b"?")[0].decode("latin-1")
        if not is_proxied(method, path):
            self._make_scope()
            super().on_headers_complete()
            if self.pipeline:
                self._read_ahead()
            return
        http_1_0 = self.parser.get_http_version() == "1.0"
        incoming = Incoming(method, target, path, self.headers, http_1_0)
        self.headers = []  # trailers of a chunked body are reported as headers too, and end here
        keep_alive = self.parser.should_keep_alive()
        previous: Any = self.cycle
        exchange: Any = Exchange(self.plane, self, incoming, keep_alive)
        self.cycle = exchange
        if previous is None or previous.response_complete:
            self._take_turn(exchange)
        else:
            self.pipeline.appendleft((exchange, self.app))
            self._read_ahead()

    def _read_ahead(self) -> None:
        if len(self.pipeline) < MAX_PIPELINED:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Start the next request in line: uvicorn's own pipeline calls this for both kinds."""
        if isinstance(cycle, Exchange):
            self._take_turn(cycle)
        else:
            super()._start_asgi_task(cycle, app)

    def _take_turn(self, exchange: Exchange) -> None:
        self._active = exchange
        incoming = exchange.incoming
        if exchange is self._broken:
            exchange.fail(RouterError.BAD_REQUEST)
        elif max(incoming.announced_bytes, incoming.size_bytes) > self.plane.limits.max_body_bytes:
            self._refuse_body(exchange)
        elif incoming.complete:
            exchange.start()
        elif not incoming.http_1_0 and incoming.fields.get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        exchange: Any = self.cycle
        if not isinstance(exchange, Exchange):
            super().on_body(body)
        elif not exchange.response_complete:
            exchange.incoming.add(body)
            if exchange.incoming.size_bytes > self.plane.limits.max_body_bytes:
                self._refuse_body(exchange)

    def _refuse_body(self, exchange: Exchange) -> None:
        exchange.incoming.drop_body()
        if self._active is exchange:
            self._discarding = True
            exchange.fail(RouterError.BODY_TOO_LARGE)

    def on_message_complete(self) -> None:
        if self._skipped_body:
            return
        exchange: Any = self.cycle
        if not isinstance(exchange, Exchange):
            super().on_message_complete()
        elif not exchange.response_complete:
            exchange.incoming.complete = True
            if self._active is exchange:
                exchange.start()

    # The exchange's side

    def exchange_done(self, exchange: Answered) -> None:
        """Go on with the next request, or close."""
        if self._active is exchange:
            self._active = None
        if self.transport.is_closing():
            return
        if exchange.keep_alive:
            self._next_request()
        elif self._discarding:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.server_state.total_requests += 1
            self.transport.close()

    def _next_request(self) -> None:
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since_s = self.plane.clock()
            self.plane.idle.add(self)

    def close_if_idle(self, now: float) -> None:
        """Close the connection if it has waited for its next request for too long.

        A sweep asks this of all: uvicorn's timer for each request costs more than the sweep does.
        """
        if now - self._idle_since_s >= self.timeout_keep_alive:
            self.transport.close()


def downstream_class(plane: Plane) -> type[Downstream]:
    """Return the protocol class to give to uvicorn's `http=`."""
    return type("BoundDownstream", (Downstream,), {"plane": plane})
