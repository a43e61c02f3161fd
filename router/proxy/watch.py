"""What a sweep does with a request under way: ends what has fallen silent, keeps open what waits for its stream."""

from __future__ import annotations

from typing import Protocol

from router.core.health import Cause
from router.core.types import Outcome, OutcomeKind
from router.proxy.attempt import Attempt
from router.proxy.client import Client
from router.proxy.errors import RouterError
from router.proxy.plane import Plane
from router.proxy.reply import Reply
from router.proxy.report import Ended
from router.proxy.vanished import unacknowledged


class Watched(Ended, Protocol):
    """A request under way."""

    plane: Plane
    client: Client
    attempt: Attempt | None
    reply: Reply
    paused: bool
    """Whether the client does not take its bytes."""
    response_complete: bool

    @property
    def can_retry(self) -> bool:
        """Whether another replica may be asked."""

    def settle(self, outcome: Outcome) -> None:
        """Account for the attempt: it is over."""

    def attempt_failed(self, kind: OutcomeKind) -> None:
        """The attempt has failed before anything of it was passed on."""

    def fail(self, error: RouterError) -> None:
        """Answer with an error of the router's own."""


def look(exchange: Watched, now: float) -> None:
    """Look whether something has moved: end what is silent for too long, keep open what waits for its stream."""
    attempt, limit_s = exchange.attempt, exchange.plane.limits.silence_timeout_s
    if attempt is not None and attempt.sent:
        health = attempt.ticket.replica.health
        refusing = health.refusing_since_s is not None
        if exchange.paused:
            if attempt.silence.lasts(now, limit_s):
                exchange.client.transport.abort()
            return
        if attempt.silence.moved(now):
            attempt.ticket.replica.heard_s = now
        elif attempt.silence.lasts(now, limit_s, refusing):
            _fell_silent(exchange, attempt, refusing)
            return
        elif health.cause is Cause.SILENCE and not health.up and not attempt.passing and exchange.can_retry:
            attempt.abandon()
            exchange.attempt_failed(OutcomeKind.SILENT)
    if not exchange.response_complete:
        _keep_open(exchange, now)


def look_at_hosts(exchange: Watched, now: float) -> None:
    """Look whether the client's host or the replica's has vanished: its kernel acknowledges nothing any more."""
    limits, transport = exchange.plane.limits, exchange.client.transport
    if exchange.response_complete:
        return
    if unacknowledged(transport).resent_s >= limits.vanish_timeout_s:
        transport.abort()
    elif exchange.attempt is not None and _is_unheard(exchange.attempt, limits.connect_timeout_s, now):
        exchange.attempt.abandon()
        exchange.attempt_failed(OutcomeKind.RESET)


def _is_unheard(attempt: Attempt, limit_s: float, now: float) -> bool:
    """Tell whether a request went to a vanished host: nothing acknowledged for as long as a new connection may take."""
    connection, sent_s = attempt.connection, attempt.sent_s
    if connection is None or sent_s is None or attempt.answer is not None or now - sent_s < limit_s:
        return False
    return unacknowledged(connection.transport).unheard_s >= limit_s


def _fell_silent(exchange: Watched, attempt: Attempt, refusing: bool) -> None:
    if attempt.die():
        return
    if refusing:
        exchange.attempt_failed(OutcomeKind.RESET)
    else:
        exchange.settle(Outcome(OutcomeKind.RESET))
        exchange.fail(RouterError.UPSTREAM_SILENT)


def _keep_open(exchange: Watched, now: float) -> None:
    """Write a comment to a stream that has not begun, where it has been silent for so long."""
    interval_s = exchange.plane.limits.sse_keepalive_s
    begun = exchange.attempt is not None and exchange.attempt.passing
    if not interval_s or begun or exchange.request is None or not exchange.request.streaming:
        return
    exchange.reply.keep_open(exchange, now, interval_s)
