"""One request from its last byte in to its settlement: placed (see `placing`), attempted, relayed, settled."""

from __future__ import annotations

import asyncio
from functools import partial
from random import getrandbits

from router.core.misses.types import TurnAccount
from router.core.ticket import Ticket
from router.core.types import NoReplicaError, Outcome, OutcomeKind, Prompt, ReplicaId, UnknownModelError, Usage
from router.ports import RequestRecord
from router.proxy import report
from router.proxy.answer import Answer
from router.proxy.attempt import Attempt
from router.proxy.client import Client
from router.proxy.door import OPEN, tokens_used
from router.proxy.errors import RouterError
from router.proxy.headers import TRACE_CONTEXT
from router.proxy.incoming import Incoming
from router.proxy.placing import Placing
from router.proxy.plane import Plane
from router.proxy.pool import Pool
from router.proxy.relay import Write
from router.proxy.reply import Reply
from router.proxy.report import End
from router.proxy.watch import look, look_at_hosts


class Exchange(Placing):
    """The state of one proxied request: the owner of its attempts and, to uvicorn, a cycle."""

    message_event = asyncio.Event()
    """Part of uvicorn's cycle; nobody waits for it here."""

    def __init__(self, plane: Plane, client: Client, incoming: Incoming, keep_alive: bool) -> None:
        super().__init__(plane, incoming)
        self.client = client
        self.keep_alive = keep_alive and not incoming.http_1_0
        self.disconnected = False
        self.request_id = incoming.fields.get(b"x-request-id") or b"%032x" % getrandbits(128)
        self.attempt: Attempt | None = None
        self.excluded: list[ReplicaId] = []
        self.admission = OPEN
        """What the door let it in with."""
        self.first_byte_s: float | None = None
        self.extra_lines = b""
        """Header lines of the answer, beside those that every answer gets."""
        self.error: RouterError | None = None
        self.trace = None if plane.tracer is None else plane.tracer.begin(incoming.take(TRACE_CONTEXT))
        self.reply = Reply(client.transport, incoming)
        self.paused = False
        """Whether the client does not take its bytes at the moment."""

    @property
    def status(self) -> int | None:
        """The status that the client was or will be sent; None while there is none."""
        return self.reply.status(self.error, None if self.attempt is None else self.attempt.status)

    @property
    def ticket(self) -> Ticket | None:
        """The present attempt's."""
        return None if self.attempt is None else self.attempt.ticket

    def turn(self, ticket: Ticket | None, usage: Usage) -> TurnAccount | None:
        """Return the account of its turn on a replica; by an empty `usage` what is predicted."""
        if self.recognised is None:
            self.plane.later.work()
        if self.request is None or ticket is None:
            return None
        return self.plane.account(self.recognised, self.request, ticket.decision, usage, self.excluded)

    # Attempts

    def _try(self, ticket: Ticket) -> None:
        pool = self.plane.pools[ticket.decision.replica]
        self.attempt = attempt = Attempt(self, ticket, pool, self.plane.clock)
        attempt.begin()

    @property
    def can_retry(self) -> bool:
        """Whether another replica may be asked if this one fails."""
        tried = len(self.excluded)
        return tried < self.plane.limits.max_retries and len(self.plane.fleet) > tried + 1

    def upstream_request(self, pool: Pool) -> tuple[bytes, bytes, bool]:
        """Return head and body for a replica, and whether its answer has no body whatever it announces."""
        incoming = self.incoming
        authorization, trace_lines = self.plane.authorization, b"" if self.trace is None else self.trace.lines
        body, ticket = incoming.body(), self.ticket
        if self.plane.label is not None and ticket is not None:
            trace_lines += self.plane.label(ticket, incoming.fields.get(b"x-session-id"), body)
        if self.plane.keeper is not None and ticket is not None:
            self.plane.keeper.sent(ticket, incoming.path, body)
        head = incoming.upstream_head(pool.authority, self.request_id, authorization, pool.own_lines, trace_lines)
        return head, body, incoming.method == b"HEAD"

    def attempt_failed(self, kind: OutcomeKind) -> None:
        """Before the first byte went to the client: another replica, or an error."""
        may_retry, attempt = self.can_retry, self.attempt
        if attempt is None or self.request is None:
            return
        replica = attempt.ticket.decision.replica
        self.excluded.append(replica)
        self.plane.audience.attempt_failed(replica, kind)
        self.settle(Outcome(kind))
        if not may_retry:
            self.fail(RouterError.UPSTREAM_FAILED)
            return
        try:
            self._try(self.plane.route(self.request, self.excluded))
        except (NoReplicaError, UnknownModelError):
            self.fail(RouterError.UPSTREAM_FAILED)

    def out_of_files(self, error: OSError) -> None:
        """End it: another replica could not be connected to either, and none is to blame."""
        self.plane.shortage.met(error, self.plane.clock())
        self.cut(RouterError.OUT_OF_FILES)

    def commit(self, answer: Answer, data: bytes) -> Write:
        """Send the head and the first bytes of the body on: from here the answer is this replica's."""
        write = self.reply.pass_on(self, answer, data)
        self.incoming.drop_body()
        if self.client.write_paused:
            self.pause()
        return write

    def content_began(self) -> None:
        """The first content has come: the prefill is over."""
        if self.attempt is not None:
            self.first_byte_s = self.plane.clock()
            self.plane.first_byte(self.attempt.ticket, self.first_byte_s)

    def attempt_completed(self, answer: Answer) -> None:
        """End the answer, and settle."""
        attempt = self.attempt
        self.reply.end()
        if attempt is not None:
            if self.paused:
                attempt.resume()  # the connection serves others now
            if self.request is not None and self.request.shape == "responses":
                self.plane.remember_response(answer.first, attempt.ticket.decision.replica)
        self._end(answer.outcome())

    # Ends

    def attempt_died(self, answer: Answer) -> None:
        """The replica was lost in the middle of its answer: tell the client, and cut."""
        self._cut(RouterError.UPSTREAM_DIED, answer)
        if self.attempt is not None:
            self.plane.audience.attempt_failed(self.attempt.ticket.decision.replica, OutcomeKind.DIED)
        self._end(Outcome(OutcomeKind.DIED, self.status, answer.usage()))

    def _cut(self, error: RouterError, answer: Answer) -> None:
        self.error = error
        self.keep_alive = False
        self.reply.cut(error, answer)

    def fail(self, error: RouterError, message: str | None = None, retry_after_s: float | None = None) -> None:
        """See `Placing.fail`."""
        self.error = error
        if error.ends_connection:
            self.keep_alive = False
        self.keep_alive = self.reply.refuse(self, error, message, retry_after_s)
        self._end(None)

    def cut(self, error: RouterError) -> None:
        """End it now, wherever it stands; no replica is to blame."""
        self.keep_alive = False
        self._give_up()
        attempt = self.attempt
        if attempt is not None and attempt.answer is not None and attempt.passing:
            self._cut(error, attempt.answer)
            self._end(Outcome(OutcomeKind.CLIENT_LEFT, self.status, attempt.answer.usage()))
        else:
            self.settle(Outcome(OutcomeKind.CLIENT_LEFT))
            self.fail(error)

    def client_left(self) -> None:
        """The client closed its connection: so does the upstream, and the engine frees the request's blocks."""
        if self.response_complete:
            return
        self.disconnected = True
        self._give_up()
        self._end(Outcome(OutcomeKind.CLIENT_LEFT, self.status))

    def _give_up(self) -> None:
        """Leave the queue, or the replica."""
        self._give_up_waiting()
        if self.attempt is not None:
            self.attempt.abandon()

    def settle(self, outcome: Outcome) -> None:
        """Account for the present attempt, if there is one: it is over."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            if self.trace is not None:
                self.trace.attempt_ended(attempt.ticket, attempt.sent_s, attempt.status, outcome)
            self.plane.settle(attempt.ticket, outcome)

    def _charge(self, outcome: Outcome | None, reads: int) -> None:
        attempt = self.attempt
        if outcome is None or attempt is None:
            self.admission.finished(0)
        else:
            self.admission.finished(tokens_used(outcome.usage, attempt.ticket.decision.prompt_tokens, reads))

    def _end(self, outcome: Outcome | None) -> None:
        attempt = self.attempt
        reads = attempt.silence.segments if attempt is not None and attempt.passing else 0
        self._charge(outcome, reads)
        if self.recognised is None and self.request is not None and self.request.prompt is not None:
            self._end_before_recognised(self.request.prompt)
        sent_s = None if attempt is None else attempt.sent_s
        end = End(self.ticket, sent_s, self.status, outcome, self.plane.clock(), reads)
        if outcome is not None:
            self.settle(outcome)
        self.response_complete = True
        self.attempt = None
        self.incoming.drop_body()
        self.plane.active.discard(self)
        self.plane.later.put(partial(self._account, end))
        self.client.exchange_done(self)

    def _end_before_recognised(self, prompt: Prompt) -> None:
        """See to it that its end is not taken for one that was known before it came."""
        if prompt.open_text is None:
            self.ended_anew = not self.plane.fleet.index.turns.knows(prompt.hashes[-1])
        else:
            self.plane.later.work()

    def _account(self, end: End) -> RequestRecord:
        """Account for the turn; return what is told of it."""
        record = report.record(self, end)
        if record.turn is not None and self.recognised is not None and end.ticket is not None:
            self.plane.learn_turn(self.recognised, end.ticket, record.usage, end.at_s)
        if self.trace is not None:
            self.trace.finished(record, self.started_s)
        if record.usage.prompt_tokens and self.plane.tokenizer is not None and self.request is not None:
            self.plane.tokenizer.reported(self.request, record.usage.prompt_tokens)
        if self.plane.recorder is not None and self.request is not None and end.ticket is not None:
            self.plane.recorder.request_finished(record, self.request, end.reads)
        return record

    # Back-pressure and silence

    def pause(self) -> None:
        """The client does not take its bytes: stop reading from its replica."""
        self.paused = True
        if self.attempt is not None:
            self.attempt.pause()

    def resume(self) -> None:
        """The client takes bytes again."""
        self.paused = False
        if self.attempt is not None:
            self.attempt.resume()

    def look(self, now: float) -> None:
        """End it if nothing has moved for too long; keep it open while it waits."""
        look(self, now)

    def look_at_hosts(self, now: float) -> None:
        """End it, or its attempt, if the host of its client or replica has vanished."""
        look_at_hosts(self, now)
