"""One request from its last byte in to its settlement: route, attempt, relay, settle."""

from __future__ import annotations

import asyncio
from functools import partial
from random import getrandbits

from router.core.ticket import Ticket
from router.core.types import NoReplicaError, Outcome, OutcomeKind, ReplicaId, RoutingRequest, Usage
from router.proxy import report
from router.proxy.answer import Answer
from router.proxy.client import Client
from router.proxy.errors import RouterError, error_event
from router.proxy.headers import Headers
from router.proxy.held import HELD_STATUSES, HeldAnswer
from router.proxy.incoming import Incoming
from router.proxy.openai import read_request
from router.proxy.plane import Plane
from router.proxy.relay import Body, Write
from router.proxy.silence import Silence
from router.proxy.upstream import Framing, UpstreamConnection


class Exchange:
    """The state of one proxied request: the listener of its upstream connection and, to uvicorn, a cycle."""

    message_event = asyncio.Event()
    """Part of uvicorn's cycle; nobody waits for it here."""

    def __init__(self, plane: Plane, client: Client, incoming: Incoming, keep_alive: bool) -> None:
        self.plane = plane
        self.client = client
        self.incoming = incoming
        self.keep_alive = keep_alive and not incoming.http_1_0
        self.response_complete = False
        self.disconnected = False
        self.request_id = incoming.fields.get(b"x-request-id") or b"%032x" % getrandbits(128)
        self.request: RoutingRequest | None = None
        self.ticket: Ticket | None = None
        self.excluded: list[ReplicaId] = []
        self.started_s = plane.clock()
        self.recollected = False
        """Whether the store taught something of this request."""
        self.overhead_s = 0.0
        self.first_byte_s: float | None = None
        self.error: RouterError | None = None
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._answer: Answer | None = None
        self._held: HeldAnswer | None = None
        self._body: Body | None = None
        self._write: Write = client.transport.write
        self._silence = Silence(self.started_s)
        self._paused = False

    @property
    def status(self) -> int | None:
        """The status that the client was or will be sent; None while there is none."""
        if self.error is not None and self._body is None:
            return self.error.status
        return None if self._answer is None else self._answer.status

    # Route and attempt

    def start(self) -> None:
        """Route the request: it has arrived whole, and it is its turn on its connection."""
        plane, incoming = self.plane, self.incoming
        self.started_s = plane.clock()
        plane.active.add(self)
        session = incoming.first_of(plane.session_headers)
        self.request = request = read_request(incoming.path, incoming.body(), session)
        asked = plane.question(request)
        if asked is None or plane.store is None:
            self._route(request)
        else:
            plane.store.ask(asked, partial(self._recalled, request))

    def _recalled(self, request: RoutingRequest, taught: bool) -> None:
        """Go on: the fleet has learnt what other routers know of the request, or nothing."""
        self.recollected = taught
        if not self.response_complete:  # the client may have left meanwhile
            self._route(request)

    def _route(self, request: RoutingRequest) -> None:
        self._attempt(request)
        self.overhead_s = self.plane.clock() - self.started_s

    def _attempt(self, request: RoutingRequest) -> None:
        try:
            self.ticket = self.plane.route(request, self.excluded)
        except NoReplicaError:
            self.fail(RouterError.UPSTREAM_FAILED if self.excluded else RouterError.NO_REPLICA)
            return
        connection = self.plane.pools[self.ticket.decision.replica].take()
        if connection is None:
            self._connect(self.ticket)
        else:
            self._send(self.ticket, connection)

    def _connect(self, ticket: Ticket) -> None:
        self._connection = None
        self._connecting = asyncio.get_running_loop().create_task(self._send_when_connected(ticket))

    async def _send_when_connected(self, ticket: Ticket) -> None:
        pool = self.plane.pools[ticket.decision.replica]
        try:
            connection = await pool.connect()
        except OSError:  # TimeoutError and SSLError are OSErrors too
            if self.ticket is ticket:
                self._attempt_failed(OutcomeKind.REFUSED)
            return
        if self.ticket is ticket:
            self._send(ticket, connection)
        else:
            pool.put(connection)  # the client left meanwhile

    def _send(self, ticket: Ticket, connection: UpstreamConnection) -> None:
        incoming, plane = self.incoming, self.plane
        self._connection = connection
        self._silence.restart(plane.clock())
        authority = plane.pools[ticket.decision.replica].authority
        head = incoming.upstream_head(authority, self.request_id, plane.authorization)
        connection.start(self, head, incoming.body(), expects_no_body=incoming.method == b"HEAD")

    @property
    def _can_retry(self) -> bool:
        tried = len(self.excluded)
        return tried < self.plane.limits.max_retries and len(self.plane.fleet) > tried + 1

    def _attempt_failed(self, kind: OutcomeKind) -> None:
        """Before the first byte went to the client: another replica, or an error."""
        may_retry, ticket = self._can_retry, self.ticket
        if ticket is not None:
            self.excluded.append(ticket.decision.replica)
            self.plane.observer.attempt_failed(ticket.decision.replica, kind)
        self._settle(Outcome(kind))
        self._connection = self._answer = self._held = None
        if may_retry and self.request is not None:
            self._attempt(self.request)
        else:
            self.fail(RouterError.UPSTREAM_FAILED)

    # The upstream connection's listener

    def answer_head(self, status: int, headers: Headers, framing: Framing) -> None:
        """Keep the head until the body begins: vLLM sends it before it has begun to work."""
        self._answer = Answer(status, headers, framing)
        if status in HELD_STATUSES and self._can_retry:
            self._held = HeldAnswer()

    def answer_bytes(self, data: bytes) -> None:
        """Write the body on, as it came."""
        self._silence.segments += 1
        answer = self._answer
        if answer is None:
            return
        if self._body is None:
            self._first_bytes(answer, data)
            return
        answer.tail.append(data)
        self._write(data)
        if self.first_byte_s is None:
            self._note_content(answer, data)

    def _first_bytes(self, answer: Answer, data: bytes) -> None:
        if self._held is not None:
            self._held.add(data)
            if self._held.full:
                self._pass_on(answer, self._held)
        elif answer.streams_events and self._can_retry and answer.is_engine_error(data):
            self._abandon()
            self._attempt_failed(OutcomeKind.RESET)
        else:
            self._commit(answer, data)
            self._note_content(answer, data)

    def _pass_on(self, answer: Answer, held: HeldAnswer) -> None:
        self._held = None
        self._commit(answer, held.data)

    def _note_content(self, answer: Answer, data: bytes) -> None:
        if self.ticket is not None and not answer.is_preamble(data):
            self.first_byte_s = self.plane.clock()
            self.plane.first_byte(self.ticket, self.first_byte_s)

    def _commit(self, answer: Answer, data: bytes) -> None:
        """Send the head and the first bytes of the body on: from here the answer is this replica's."""
        incoming, client = self.incoming, self.client
        length = answer.fields.get(b"content-length")
        headless = incoming.method == b"HEAD"
        self._body = body = Body(client.transport, answer.framing, length, incoming.http_1_0, headless)
        self._write = body.write
        decision = None if self.ticket is None else self.ticket.decision
        head = report.answer_lines(self.request_id, decision, answer, body.framing_line, close=not self.keep_alive)
        body.begin(head, data)
        answer.begin(data)
        incoming.drop_body()
        if client.write_paused:
            self.pause()

    def answer_complete(self) -> None:
        """Settle; or ask another replica, if this one's error says that it did no work."""
        answer, held = self._answer, self._held
        if answer is None:
            return
        if held is not None:
            kind = held.retry_as(answer.status)
            if kind is not None:
                self._attempt_failed(kind)
                return
            self._pass_on(answer, held)
        elif self._body is None:
            self._commit(answer, b"")
        if self._body is not None:
            self._body.end()
        if self._paused and self._connection is not None:
            self._connection.resume()  # it serves others now
        if self.request is not None and self.request.shape == "responses" and self.ticket is not None:
            self.plane.remember_response(answer.first, self.ticket.decision.replica)
        self._end(answer.outcome())

    def answer_lost(self, error: Exception | None, began: bool) -> None:
        """Tell the client if it has part of the answer; otherwise try elsewhere."""
        connection, ticket = self._connection, self.ticket
        if self._body is not None:
            self._die()
        elif ticket is not None and connection is not None and connection.answers and not began:
            self._connect(ticket)  # kept alive, and closed by the engine as we wrote: nobody's failure
        else:
            self._attempt_failed(OutcomeKind.RESET)

    # Ends

    def _die(self) -> None:
        """The replica was lost in the middle of its answer: tell the client, and cut."""
        answer, body = self._answer, self._body
        self.error = RouterError.UPSTREAM_DIED
        self.keep_alive = False
        if answer is None or body is None or not answer.streams_events:
            self.client.transport.abort()
        else:
            body.cut(error_event(self.error, self.incoming.path), answer.between_events)
        if self.ticket is not None:
            self.plane.observer.attempt_failed(self.ticket.decision.replica, OutcomeKind.DIED)
        self._end(Outcome(OutcomeKind.DIED, self.status, answer.usage() if answer else Usage()))

    def fail(self, error: RouterError) -> None:
        """Answer with an error of the router's own."""
        self.error = error
        if error.ends_connection:
            self.keep_alive = False
        answer = report.error_answer(error, self.incoming, self.request_id, self.keep_alive)
        self.client.transport.write(answer)
        self._end(None)

    def client_left(self) -> None:
        """The client closed its connection: so does the upstream, and the engine frees the request's blocks."""
        if not self.response_complete:
            self.disconnected = True
            self._abandon()
            self._end(Outcome(OutcomeKind.CLIENT_LEFT, self.status))

    def _abandon(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()

    def _settle(self, outcome: Outcome) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.plane.settle(ticket, outcome)

    def _end(self, outcome: Outcome | None) -> None:
        record = report.record(self, outcome, self.plane.clock())
        if outcome is not None:
            self._settle(outcome)
        self.response_complete = True
        self._connection = None
        self.incoming.drop_body()
        self.plane.active.discard(self)
        self.plane.observer.request_finished(record)
        self.client.exchange_done(self)

    # Back-pressure and silence

    def pause(self) -> None:
        """The client does not take its bytes: stop reading from its replica."""
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """The client takes bytes again."""
        self._paused = False
        if self._connection is not None:
            self._connection.resume()

    def check_silence(self, now: float) -> None:
        """End the exchange if its replica, or its client, has not moved a byte for too long."""
        if self._connection is None or self.ticket is None:
            return
        limit_s = self.plane.limits.silence_timeout_s
        refusing = self.ticket.replica.health.refusing_since_s is not None
        if self._paused:
            if self._silence.lasts(now, limit_s):
                self.client.transport.abort()
        elif self._silence.lasts(now, limit_s, refusing):
            self._fell_silent(refusing)

    def _fell_silent(self, refusing: bool) -> None:
        self._abandon()
        if self._body is not None:
            self._die()
        elif refusing:
            self._attempt_failed(OutcomeKind.RESET)
        else:
            self._settle(Outcome(OutcomeKind.RESET))
            self.fail(RouterError.UPSTREAM_SILENT)
