"""What an exchange says of itself: its header lines, its errors, its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.types import Decision, Outcome, Usage
from router.ports import RequestRecord
from router.proxy.errors import RETRY_AFTER_S, RouterError, error_body
from router.proxy.headers import Headers, answer_head, find

if TYPE_CHECKING:
    from router.proxy.exchange import Exchange

CLIENT_LEFT_STATUS = 499
"""nginx's status for a client that closed its connection; only in logs and metrics."""


def own_lines(request_id: bytes, decision: Decision | None) -> bytes:
    """Return the answer headers that the router adds."""
    if decision is None:
        return b"x-request-id: %b\r\n" % request_id
    return (
        b"x-request-id: %b\r\nx-warmroute-replica: %b\r\nx-warmroute-decision: %b\r\nx-warmroute-matched-tokens: %d\r\n"
        % (request_id, decision.replica.encode(), decision.reason.encode(), decision.matched_tokens)
    )


def retry_after_s(headers: Headers) -> float | None:
    """Return the engine's Retry-After in seconds; None without one, or where it is a date."""
    value = find(headers, b"retry-after")
    return float(value) if value is not None and value.isdigit() else None


def write_error(exchange: Exchange, error: RouterError) -> None:
    """Write an answer of the router's own to the client."""
    body = error_body(error, exchange.incoming.path)
    headers: Headers = [(b"content-type", b"application/json")]
    if error in RETRY_AFTER_S:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S[error]))
    own = own_lines(exchange.request_id, None)
    framing = b"content-length: %d\r\n" % len(body)
    head = answer_head(error.status, headers, framing, own, close=not exchange.keep_alive)
    exchange.downstream.transport.write(head if exchange.incoming.method == b"HEAD" else head + body)


def record(exchange: Exchange, outcome: Outcome | None) -> RequestRecord:
    """Return the record of an exchange that has just ended."""
    request, ticket = exchange.request, exchange.ticket
    now = exchange.plane.clock()
    first = exchange.first_byte_s
    return RequestRecord(
        request_id=exchange.request_id.decode("latin-1"),
        method=exchange.incoming.method.decode("latin-1"),
        path=exchange.incoming.path,
        model=request.model if request else "",
        shape=request.shape if request else "unknown",
        streaming=bool(request and request.streaming),
        status=exchange.status or CLIENT_LEFT_STATUS,
        outcome=None if outcome is None else outcome.kind,
        decision=None if ticket is None else ticket.decision,
        attempts=len(exchange.excluded) + (ticket is not None),
        usage=Usage() if outcome is None else outcome.usage,
        overhead_s=exchange.overhead_s,
        ttft_s=None if first is None else first - exchange.started_s,
        total_s=now - exchange.started_s,
        error=None if exchange.error is None else exchange.error.code,
    )
