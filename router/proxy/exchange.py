"""One request from its last byte in to its settlement: route, attempt, relay, settle."""

from __future__ import annotations

import asyncio
from collections import deque
from random import getrandbits
from typing import TYPE_CHECKING

from router.core.ticket import Ticket
from router.core.types import NoReplicaError, Outcome, OutcomeKind, ReplicaId, RoutingRequest, Usage
from router.proxy import feedback, report
from router.proxy.errors import RouterError, error_event
from router.proxy.headers import Headers, answer_head, find, request_head
from router.proxy.held import HELD_STATUSES, HeldAnswer
from router.proxy.incoming import Incoming
from router.proxy.openai import read_request, stored_object_hash
from router.proxy.plane import REFUSING_SILENCE_S, Plane
from router.proxy.relay import Body, Write, as_chunk
from router.proxy.upstream import Framing, UpstreamConnection

if TYPE_CHECKING:
    from router.proxy.downstream import Downstream

TAIL_SEGMENTS = 6
"""Reads kept for `feedback`: the last content, usage and [DONE] events come in three reads at the most, then the
end."""


class Exchange:
    """The state of one proxied request. It is the listener of its upstream connection and, to uvicorn, a cycle."""

    # What uvicorn's protocol looks at in a cycle.
    message_event = asyncio.Event()

    def __init__(self, plane: Plane, downstream: Downstream, incoming: Incoming, keep_alive: bool) -> None:
        self.plane = plane
        self.downstream = downstream
        self.incoming = incoming
        self.keep_alive = keep_alive and not incoming.http_1_0
        self.response_complete = False
        self.disconnected = False
        self.request_id = find(incoming.headers, b"x-request-id") or b"%032x" % getrandbits(128)
        self.request: RoutingRequest | None = None
        self.ticket: Ticket | None = None
        self.connection: UpstreamConnection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.excluded: list[ReplicaId] = []
        self.started_s = plane.clock()
        self.overhead_s = 0.0
        self.first_byte_s: float | None = None
        self.status = 0
        self.error: RouterError | None = None
        self._answer: tuple[Headers, Framing] = ([], Framing.NONE)
        self._body: Body | None = None
        self._write: Write = downstream.transport.write
        self._held: HeldAnswer | None = None
        self._first = b""
        self._tail: deque[bytes] = deque(maxlen=TAIL_SEGMENTS)
        self._segments = 0
        self._seen_segments = 0
        self._quiet_since_s = self.started_s
        self._paused = False

    @property
    def replica_id(self) -> ReplicaId | None:
        """The replica of the present attempt."""
        return None if self.ticket is None else self.ticket.decision.replica

    @property
    def streams_events(self) -> bool:
        """Tell whether the answer is a stream of server-sent events."""
        return (find(self._answer[0], b"content-type") or b"").startswith(b"text/event-stream")

    # Route and attempt

    def start(self) -> None:
        """Route the request: it has arrived whole, and it is its turn on its connection."""
        self.started_s = self._quiet_since_s = self.plane.clock()
        self.plane.active.add(self)
        incoming = self.incoming
        homes = self.plane.fleet.homes
        self.request = read_request(incoming.path, incoming.body(), self._session(), homes.get)
        self._attempt(self.request)
        self.overhead_s = self.plane.clock() - self.started_s

    def _session(self) -> str | None:
        for name in self.plane.session_headers:
            value = find(self.incoming.headers, name)
            if value:
                return value.decode("latin-1")
        return None

    def _attempt(self, request: RoutingRequest) -> None:
        try:
            self.ticket = self.plane.fleet.route(request, self.plane.clock(), self.excluded)
        except NoReplicaError:
            self.fail(RouterError.UPSTREAM_FAILED if self.excluded else RouterError.NO_REPLICA)
            return
        connection = self.plane.pools[self.ticket.decision.replica].take()
        if connection is None:
            self._connect()
        else:
            self._send(connection)

    def _connect(self) -> None:
        self.connection = None
        self.connecting = asyncio.get_running_loop().create_task(self._connected())

    async def _connected(self) -> None:
        ticket = self.ticket
        if ticket is None:
            return
        pool = self.plane.pools[ticket.decision.replica]
        try:
            connection = await pool.connect()
        except OSError:  # TimeoutError and SSLError are OSErrors too
            if self.ticket is ticket:
                self._attempt_failed(OutcomeKind.REFUSED)
            return
        if self.ticket is ticket:
            self._send(connection)
        else:
            pool.put(connection)  # the client left meanwhile

    def _send(self, connection: UpstreamConnection) -> None:
        incoming, plane = self.incoming, self.plane
        self.connection = connection
        self._quiet_since_s = plane.clock()
        head = request_head(
            incoming.method,
            incoming.target,
            incoming.headers,
            plane.pools[self.ticket.decision.replica].address.authority if self.ticket else b"",
            self.request_id,
            incoming.size_bytes if incoming.has_body else None,
            plane.authorization,
        )
        connection.start(self, head, incoming.body(), expects_no_body=incoming.method == b"HEAD")

    @property
    def _can_retry(self) -> bool:
        tried = len(self.excluded)
        return tried < self.plane.limits.max_retries and len(self.plane.fleet) > tried + 1

    def _attempt_failed(self, kind: OutcomeKind) -> None:
        """Before the first byte went to the client: another replica, or an error."""
        replica_id, may_retry = self.replica_id, self._can_retry
        self._settle(Outcome(kind))
        if replica_id is not None:
            self.plane.observer.attempt_failed(replica_id, kind)
            self.excluded.append(replica_id)
        self.connection = self._held = None
        if may_retry and self.request is not None:
            self._attempt(self.request)
        else:
            self.fail(RouterError.UPSTREAM_FAILED)

    # The upstream connection's listener

    def answer_head(self, status: int, headers: Headers, framing: Framing) -> None:
        self.status = status
        self._answer = (headers, framing)
        if status in HELD_STATUSES and self._can_retry:
            self._held = HeldAnswer()

    def answer_bytes(self, data: bytes) -> None:
        self._segments += 1
        if self._body is None:
            self._first_bytes(data)
            return
        self._tail.append(data)
        self._write(data)
        if self.first_byte_s is None:
            self._note_content(data)

    def _first_bytes(self, data: bytes) -> None:
        if self._held is not None:
            self._held.add(data)
            if self._held.full:
                self._pass_held_on(self._held)
            return
        if self._can_retry and self.streams_events and feedback.is_engine_error(self._content(data)):
            self._abandon()
            self._attempt_failed(OutcomeKind.RESET)
            return
        self._commit()
        self._first = data
        self._tail.append(data)
        self._write(data)
        self._note_content(data)

    def _pass_held_on(self, held: HeldAnswer) -> None:
        self._held = None
        self._commit()
        if held.data:
            self._tail.append(held.data)
            self._write(held.data)

    def _content(self, data: bytes) -> bytes:
        """Return what stands in the first chunk of `data`."""
        return data.partition(b"\r\n")[2] if self._answer[1] is Framing.CHUNKED else data

    def _note_content(self, data: bytes) -> None:
        """Note the end of the prefill: the first bytes that are more than a comment which keeps the stream alive."""
        if self.streams_events and self._content(data).startswith(b":"):
            return
        self.first_byte_s = self.plane.clock()
        if self.ticket is not None:
            self.plane.fleet.first_byte(self.ticket, self.first_byte_s)

    def _commit(self) -> None:
        """Send the head on: from here the answer is this replica's."""
        headers, framing = self._answer
        incoming = self.incoming
        length = find(headers, b"content-length")
        write = self.downstream.transport.write
        self._body = body = Body(write, framing, length, incoming.http_1_0, headless=incoming.method == b"HEAD")
        self._write = body.write
        own = report.own_lines(self.request_id, self.ticket.decision if self.ticket else None)
        write(answer_head(self.status, headers, body.framing_line, own, close=not self.keep_alive))
        incoming.drop_body()
        if self.downstream.flow.write_paused:
            self.pause()

    def answer_complete(self) -> None:
        if self._held is not None:
            kind = self._held.retry_as(self.status)
            if kind is not None:
                self._attempt_failed(kind)
                return
            self._pass_held_on(self._held)
        if self._body is None:
            self._commit()
        if self._body is not None and self._body.last:
            self._write(self._body.last)
        if self._paused and self.connection is not None and not self.connection.transport.is_closing():
            self.connection.transport.resume_reading()  # it serves others now
        self._end(self._outcome())

    def _outcome(self) -> Outcome:
        tail = b"".join(self._tail)
        kind = OutcomeKind.COMPLETED
        if self.status in (429, 503):
            kind = OutcomeKind.BUSY
        elif self.status >= 500:
            kind = OutcomeKind.ERRORED
        elif self.streams_events and feedback.ends_in_engine_error(tail):
            kind = OutcomeKind.DIED
        usage = feedback.read_usage(self._first, tail) if self.status < 400 else Usage()
        if self.request is not None and self.request.shape == "responses" and self.replica_id is not None:
            stored = feedback.response_id(self._first)
            if stored is not None:
                self.plane.fleet.homes.put(stored_object_hash(stored), self.replica_id)
        return Outcome(kind, self.status, usage, report.retry_after_s(self._answer[0]))

    def answer_lost(self, error: Exception | None, began: bool) -> None:
        connection = self.connection
        if self._body is not None:
            self._die()
        elif connection is not None and connection.answers and not began:
            self._connect()  # it was kept alive and closed by the engine as we wrote: nobody's failure
        else:
            self._attempt_failed(OutcomeKind.RESET)

    # Ends

    def _die(self) -> None:
        """The replica was lost in the middle of its answer: tell the client, and cut."""
        self.error = RouterError.UPSTREAM_DIED
        transport = self.downstream.transport
        framing = self._answer[1]
        event = error_event(self.error, self.incoming.path)
        self.keep_alive = False
        if not self.streams_events or framing is Framing.SIZED:
            transport.abort()
        elif framing is Framing.UNTIL_CLOSE or self.incoming.http_1_0:
            (self.downstream.transport.write if self.incoming.http_1_0 else self._write)(event)
        elif self._tail and self._tail[-1].endswith(b"\n\n\r\n"):  # between two chunks: the engine sends one an event
            transport.write(as_chunk(event))
        if self.replica_id is not None:
            self.plane.observer.attempt_failed(self.replica_id, OutcomeKind.DIED)
        usage = feedback.read_usage(self._first, b"".join(self._tail))
        self._end(Outcome(OutcomeKind.DIED, self.status, usage))

    def fail(self, error: RouterError) -> None:
        """Answer with an error of the router's own."""
        self.error = error
        self.status = error.status
        if error in (RouterError.BODY_TOO_LARGE, RouterError.BAD_REQUEST):
            self.keep_alive = False
        report.write_error(self, error)
        self._end(None)

    def client_left(self) -> None:
        """The client closed its connection: so does the upstream, and the engine frees the request's blocks."""
        if self.response_complete:
            return
        self.disconnected = True
        self._abandon()
        self._end(Outcome(OutcomeKind.CLIENT_LEFT, self.status or None, Usage()))

    def _abandon(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()

    def _settle(self, outcome: Outcome) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.plane.fleet.settle(ticket, outcome, self.plane.clock())

    def _end(self, outcome: Outcome | None) -> None:
        record = report.record(self, outcome)
        if outcome is not None:
            self._settle(outcome)
        self.response_complete = True
        self.connection = None
        self.incoming.drop_body()
        self.plane.active.discard(self)
        self.plane.observer.request_finished(record)
        self.downstream.exchange_done(self)

    # Back-pressure and silence

    def pause(self) -> None:
        """The client does not take its bytes: stop reading from its replica."""
        self._paused = True
        if self.connection is not None:
            self.connection.transport.pause_reading()

    def resume(self) -> None:
        """The client takes bytes again."""
        self._paused = False
        if self.connection is not None:
            self.connection.transport.resume_reading()

    def check_silence(self, now: float) -> None:
        """End the exchange if its replica, or its client, has not moved a byte for too long."""
        if self.connection is None or self._segments != self._seen_segments:
            self._seen_segments, self._quiet_since_s = self._segments, now
            return
        quiet_s = now - self._quiet_since_s
        too_long = quiet_s >= self.plane.limits.silence_timeout_s
        if self._paused:
            if too_long:
                self.downstream.transport.abort()
            return
        refusing = self.ticket is not None and self.ticket.replica.health.refusing_since_s is not None
        refusing = refusing and quiet_s >= REFUSING_SILENCE_S
        if not (too_long or refusing):
            return
        self._abandon()
        if self._body is not None:
            self._die()
        elif refusing:
            self._attempt_failed(OutcomeKind.RESET)
        else:
            self._settle(Outcome(OutcomeKind.RESET))
            self.fail(RouterError.UPSTREAM_SILENT)
