"""The client's side: uvicorn's HTTP protocol, with inference requests answered in the protocol itself.

uvicorn keeps the server (sockets, TLS, signals, graceful stop) and everything that is not proxied. Its pipeline of
cycles orders both kinds on one connection.
"""

from __future__ import annotations

import time
from typing import Any

from router.proxy.client import Answered
from router.proxy.closing import Closing
from router.proxy.door import Door, Pass
from router.proxy.errors import RouterError
from router.proxy.exchange import Exchange
from router.proxy.forwarded import NOWHERE
from router.proxy.incoming import Incoming
from router.proxy.plane import Plane
from router.proxy.receiving import BODY, body_framing
from router.proxy.targets import is_proxied, origin_form

MAX_PIPELINED = 8
"""Requests read ahead on one connection before reading stops. Until then a client that leaves is noticed at once."""

READ_AWAY_BYTES = 262_144
"""Longest body of a refused request that is read and thrown away, so that the connection can go on. One read's worth:
a longer one is cheaper to end together with the connection."""


class Downstream(Closing):
    """One client connection. `plane`, `door` and `lingering` are set by `downstream_class`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._active: Exchange | None = None
        self._broken: Exchange | None = None
        self._forwarded = NOWHERE

    # uvicorn's and asyncio's side

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) - len(self.lingering) > self.door.rules.max_connections:
            self._turn_away()
            return
        self._forwarded = self.door.forwarded(self.client[0] if self.client else None, self.scheme or "http")
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self.plane.idle.discard(self)
        self.door.receiving.discard(self)
        self.lingering.discard(self)
        active, self._active = self._active, None
        if active is not None:
            active.client_left()
        for waiting, _ in self.pipeline:
            if isinstance(waiting, Exchange):
                waiting.incoming.drop_body()
        self.pipeline.clear()
        super().connection_lost(exc)

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

    def _refuse_bytes(self, error: RouterError) -> None:
        """Refuse what can't be read on, in the form of the API's other errors, once all before it is answered."""
        self.door.receiving.discard(self)
        if self._discarding or self.transport.is_closing():
            return
        self._discarding = True
        last: Any = self.cycle
        if last is None or (last.response_complete and self._part is not BODY):
            exchange = Exchange(self.plane, self, Incoming(b"GET", b"/", "/", [], http_1_0=False), keep_alive=False)
            exchange.fail(error)
        elif last.response_complete:
            self._close()  # the request was answered before its body came, and another answer would be of none
        elif not isinstance(last, Exchange) or last.incoming.complete:
            last.keep_alive = False  # its own answer comes first; then the connection ends
        elif last is self._active:
            last.fail(error)
        else:
            self._broken, self._error = last, error

    def _fail(self, error: RouterError) -> None:
        self._discarding = True
        cycle: Any = self.cycle
        if self._active is not None and self._active is cycle:
            self._active.cut(error)
        else:
            self.transport.abort()

    # llhttp's side

    def on_headers_complete(self) -> None:
        if self._head_is_known or self._discarding or self.transport.is_closing():
            self._head_is_known = False
            self._part = BODY
            return  # a head made up for the parser; or a request behind the last one that is answered here
        parser = self.parser
        method, version = parser.get_method(), parser.get_http_version()
        target = origin_form(self.url)
        path = target.partition(b"?")[0].decode("latin-1")
        incoming = Incoming(method, target, path, self.headers, version == "1.0", self._forwarded, self.plane.bodies)
        if self._is_odd(incoming, version):
            self._check_head(incoming, version)
        if parser.should_upgrade():
            if method == b"CONNECT":
                self._stop(RouterError.BAD_REQUEST)
            self._skipped_body = body_framing(self.headers)
        self._part = BODY
        proxied = is_proxied(method, path)
        if (not proxied or self.door.cors.on) and self._is_for_app(incoming, proxied):
            self._make_scope(incoming)
            super().on_headers_complete()
            if self.plane.stopping:
                self.cycle.keep_alive = False
            if self.pipeline:
                self._read_ahead()
            return
        self.headers = []  # trailers of a chunked body are reported as headers too, and end here
        previous: Any = self.cycle
        keep_alive = parser.should_keep_alive() and not self.plane.stopping
        exchange: Any = Exchange(self.plane, self, incoming, keep_alive)
        self.cycle = exchange
        if previous is None or previous.response_complete:
            self._take_turn(exchange)
        else:
            self.pipeline.appendleft((exchange, self.app))
            self._read_ahead()

    def _is_for_app(self, incoming: Incoming, proxied: bool) -> bool:
        """Tell whether the router's own application answers. The list of models is not for those without a key."""
        if proxied:
            return self.door.cors.is_preflight(incoming.method, incoming.fields)
        return incoming.path != "/v1/models" or self.door.knows(incoming.fields)

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
            exchange.fail(self._error)
        elif self.door.asks and not self._let_in(exchange):
            return
        elif max(incoming.announced_bytes, incoming.size_bytes) > self.plane.limits.max_body_bytes:
            self._refuse_body(exchange, RouterError.BODY_TOO_LARGE)
        elif incoming.complete:
            exchange.start()
        elif not incoming.http_1_0 and incoming.expects_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _let_in(self, exchange: Exchange) -> bool:
        """Ask the door; refuse at once, however much of a body is to come."""
        incoming = exchange.incoming
        verdict = self.door.admit(incoming)
        admission = verdict if isinstance(verdict, Pass) else verdict.answer
        exchange.admission, exchange.tenant, exchange.extra_lines = admission, admission.tenant, admission.lines
        if isinstance(verdict, Pass):
            return True
        long = incoming.is_chunked or incoming.announced_bytes > READ_AWAY_BYTES or incoming.expects_continue
        if long and not incoming.complete:
            self._discarding = True
            exchange.keep_alive = False
        exchange.fail(verdict.error, verdict.message, verdict.retry_after_s)
        return False

    def on_body(self, body: bytes) -> None:
        exchange: Any = self.cycle
        self._unfinished_bytes = -self._read_bytes  # the present read is more than framing
        if not isinstance(exchange, Exchange):
            super().on_body(body)
        elif not exchange.response_complete and exchange is not self._broken:
            incoming = exchange.incoming
            incoming.add(body)
            if incoming.size_bytes > self.plane.limits.max_body_bytes:
                self._refuse_body(exchange, RouterError.BODY_TOO_LARGE)
            elif self.plane.bodies.crowd_out(incoming.size_bytes):
                self._refuse_body(exchange, RouterError.BODIES_FULL)

    def _refuse_body(self, exchange: Exchange, error: RouterError) -> None:
        exchange.incoming.drop_body()
        self._discarding = True
        if self._active is exchange:
            exchange.fail(error)
        else:
            self._broken, self._error = exchange, error

    def on_message_complete(self) -> None:
        if self._skipped_body:
            return
        self._finished()
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
            self._finish_writing()
        else:
            self.server_state.total_requests += 1
            self._close()

    def on_response_complete(self) -> None:
        if self.transport.is_closing():
            self._close()
        else:
            self._next_request()

    def _next_request(self) -> None:
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._wait_for_request()



def downstream_class(plane: Plane, door: Door | None = None) -> type[Downstream]:
    """Return the protocol class to give to uvicorn's `http=`; without a door, one that asks nothing."""
    shared = {"plane": plane, "door": door or Door(time.monotonic), "lingering": set[Downstream]()}
    return type("BoundDownstream", (Downstream,), shared)
