"""What an exchange says of itself: its header lines, its errors, its record."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple, Protocol

from router.core.fleet import Fleet
from router.core.misses.account import served
from router.core.misses.types import TurnAccount
from router.core.ticket import Ticket
from router.core.types import Decision, Outcome, ReplicaId, RoutingRequest, Usage
from router.ports import RequestRecord, Source
from router.proxy.answer import Answer
from router.proxy.door import Pass
from router.proxy.errors import RETRY_AFTER_S, RouterError, error_body
from router.proxy.explaining import EXPLAIN, explain_line
from router.proxy.headers import Headers, answer_head
from router.proxy.incoming import Incoming
from router.proxy.phases import Phases, phases

CLIENT_LEFT_STATUS = 499
"""nginx's status for a client that closed its connection; only in logs and metrics."""

RETRY_SOON = b"retry-after: 1\r\n"
"""For an engine's 429 or 503 that does not say how long: as long as the router itself keeps new work away from it."""


MAX_LISTED = 20
"""Models named in an error; /v1/models has all of them."""

MAX_NAME = 200
"""Characters of an unknown model's name that are repeated to the client."""


class Ended(Protocol):
    """What a record is made of."""

    incoming: Incoming
    request_id: bytes
    request: RoutingRequest | None
    excluded: list[ReplicaId]
    recollected: bool
    started_s: float
    overhead_s: float
    queued_s: float
    first_byte_s: float | None
    keep_alive: bool
    extra_lines: bytes
    admission: Pass
    error: RouterError | None

    @property
    def ticket(self) -> Ticket | None:
        """The last attempt's."""

    @property
    def status(self) -> int | None:
        """The status that the client was sent."""

    def turn(self, ticket: Ticket | None, usage: Usage) -> TurnAccount | None:
        """Return the account of its turn on a replica; by an empty `usage` what is predicted."""


class End(NamedTuple):
    """How an exchange ended."""

    ticket: Ticket | None
    """The last attempt's; None where there was none, or it had failed."""
    sent_s: float | None
    """When that attempt's request went out."""
    status: int | None
    outcome: Outcome | None
    at_s: float
    reads: int = 0
    """Pieces in which the answer came."""


def own_lines(request_id: bytes, decision: Decision | None) -> bytes:
    """Return the answer headers that the router adds."""
    if decision is None:
        return b"x-request-id: %b\r\n" % request_id
    return (
        b"x-request-id: %b\r\nx-warmroute-replica: %b\r\nx-warmroute-decision: %b\r\nx-warmroute-matched-tokens: %d\r\n"
        % (request_id, decision.replica.encode(), decision.reason.encode(), decision.matched_tokens)
    )


def answer_lines(ended: Ended, answer: Answer, framing: bytes) -> bytes:
    """Return the head of a replica's answer as the client gets it."""
    ticket = ended.ticket
    own = own_lines(ended.request_id, None if ticket is None else ticket.decision) + ended.extra_lines
    if ended.incoming.fields.get(EXPLAIN) == b"1":
        own += explain_line(ended.turn(ticket, Usage()))
    if answer.lacks_retry_after:
        own += RETRY_SOON
    return answer_head(answer.status, answer.headers, framing, own, close=not ended.keep_alive)


def error_answer(ended: Ended, error: RouterError, message: str | None, retry_after_s: float | None) -> bytes:
    """Return an answer of the router's own, head and body."""
    incoming = ended.incoming
    body = error_body(error, incoming.path, message)
    headers: Headers = [(b"content-type", b"application/json")]
    if retry_after_s is None:
        retry_after_s = RETRY_AFTER_S.get(error)
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, ceil(retry_after_s))))
    framing = b"content-length: %d\r\n" % len(body)
    own = own_lines(ended.request_id, None) + ended.extra_lines
    head = answer_head(error.status, headers, framing, own, close=not ended.keep_alive)
    return head if incoming.method == b"HEAD" else head + body


def unknown_model(model: str, fleet: Fleet) -> str:
    """Return what to tell a client that asks for a model which no replica serves."""
    served = sorted(frozenset().union(*(replica.models for replica in fleet)))
    shown = ", ".join(served[:MAX_LISTED]) + (f" and {len(served) - MAX_LISTED} more" * (len(served) > MAX_LISTED))
    return f"The model `{model[:MAX_NAME]}` does not exist. Models served here: {shown}."


def record(ended: Ended, end: End) -> RequestRecord:
    """Return the record of an exchange that has ended."""
    request, ticket, first = ended.request, end.ticket, ended.first_byte_s
    outcome, now = end.outcome, end.at_s
    after = _phases(ended, end)
    return RequestRecord(
        request_id=ended.request_id.decode("latin-1"),
        method=ended.incoming.method.decode("latin-1"),
        path=ended.incoming.path,
        model=request.model if request else "",
        shape=request.shape if request else "unknown",
        streaming=bool(request and request.streaming),
        batch=bool(request and request.batch),
        client=ended.admission.client,
        status=end.status or CLIENT_LEFT_STATUS,
        outcome=None if outcome is None else outcome.kind,
        decision=None if ticket is None else ticket.decision,
        source=_source(ended, ticket),
        attempts=len(ended.excluded) + (ticket is not None),
        usage=Usage() if outcome is None else outcome.usage,
        overhead_s=ended.overhead_s,
        queued_s=ended.queued_s,
        retried_s=after.retried_s,
        connect_s=after.connect_s,
        prefill_s=after.prefill_s,
        decode_s=after.decode_s,
        ttft_s=None if first is None else first - ended.started_s,
        total_s=now - ended.started_s,
        ended_s=now,
        turn=_turn(ended, ticket, outcome),
        error=None if ended.error is None else ended.error.code,
    )


def _turn(ended: Ended, ticket: Ticket | None, outcome: Outcome | None) -> TurnAccount | None:
    """Return the account of a turn that was served."""
    if ticket is None or outcome is None or not served(ticket, outcome):
        return None
    return ended.turn(ticket, outcome.usage)


def _phases(ended: Ended, end: End) -> Phases:
    if end.ticket is None:
        return Phases()
    begun_s = ended.started_s + ended.overhead_s + ended.queued_s
    return phases(begun_s, end.ticket.entry.dispatched_s, end.sent_s, ended.first_byte_s, end.at_s)


def _source(ended: Ended, ticket: Ticket | None) -> Source | None:
    request = ended.request
    if request is None or (request.prompt is None and request.session is None):
        return None
    if ended.recollected:
        return "redis"
    known = ticket is not None and (ticket.decision.home is not None or ticket.decision.matched_tokens > 0)
    return "local" if known else "none"
