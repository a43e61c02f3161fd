"""What spans say of a request: names and attributes by OpenTelemetry's conventions, and the router's own.

GenAI's conventions are not stable yet; a test compares the names with those of the installed package.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opentelemetry.trace import SpanKind

from router.core.types import Decision, OutcomeKind
from router.ports import RequestRecord

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]

PROVIDER = "vllm"

OPERATIONS = {
    "chat": "chat",
    "completions": "text_completion",
    "responses": "chat",
    "messages": "chat",
    "embeddings": "embeddings",
}
"""GenAI's name of what a shape asks for; other paths have none."""

MAX_NAME = 200
"""Characters of a model's name that are told: it comes from the client."""

CLIENT_LEFT_STATUS = 499
"""Stands in records where no status was sent."""

SERVER_FAULT_STATUS = 500
CLIENT_FAULT_STATUS = 400
"""From here on statuses are errors: to those who serve, and to those who asked."""


class Part(NamedTuple):
    """One span to be made. Times are the plane's clock's."""

    name: str
    kind: SpanKind
    begun_s: float
    ended_s: float
    attributes: Attributes
    error: str | None = None
    """What went wrong, in one word; None: nothing did."""
    content_s: float | None = None
    """When the first content came; None: not here."""


class Tried(NamedTuple):
    """One attempt that has ended."""

    span_id: int
    decision: Decision
    begun_s: float
    sent_s: float | None
    content_s: float | None
    ended_s: float
    status: int | None
    outcome: OutcomeKind


def of_request(record: RequestRecord, started_s: float, scheme: str) -> Part:
    """Return the span of the whole request."""
    error = _error(record)
    operation = OPERATIONS.get(record.shape)
    model = record.model[:MAX_NAME]
    attributes = _known(
        ("http.request.method", record.method),
        ("http.response.status_code", None if record.status == CLIENT_LEFT_STATUS else record.status),
        ("url.scheme", scheme),
        ("url.path", record.path),
        ("error.type", record.error if error is None else error),
        ("warmroute.request_id", record.request_id),
        ("warmroute.client", record.client or None),
        ("warmroute.outcome", record.outcome),
        ("warmroute.attempts", record.attempts),
    )
    if operation is not None:
        attributes |= _generation(record, operation, model)
    if record.decision is not None:
        attributes |= _choice(record.decision) | {"warmroute.matched_tokens": record.decision.matched_tokens}
    attributes |= _known(("warmroute.prefill_s", record.prefill_s), ("warmroute.decode_s", record.decode_s))
    attributes |= _turn(record)
    name, ended_s = _name(record, operation, model), started_s + record.total_s
    return Part(name, SpanKind.SERVER, started_s, ended_s, attributes, error)


def _name(record: RequestRecord, operation: str | None, model: str) -> str:
    """A model that nobody serves is no part of a name: anybody could make up as many as he likes."""
    if operation is None:
        return record.method
    return f"{operation} {model}" if model and record.decision is not None else operation


def _error(record: RequestRecord) -> str | None:
    """Return what went wrong on this side: a server error, or an answer that was cut."""
    if record.status >= SERVER_FAULT_STATUS or (record.error is not None and record.status < CLIENT_FAULT_STATUS):
        return record.error or str(record.status)
    return None


def _generation(record: RequestRecord, operation: str, model: str) -> Attributes:
    usage = record.usage
    return _known(
        ("gen_ai.operation.name", operation),
        ("gen_ai.provider.name", PROVIDER),
        ("gen_ai.request.model", model or None),
        ("gen_ai.request.stream", record.streaming or None),
        ("gen_ai.response.finish_reasons", (usage.finish_reason,) if usage.finish_reason else None),
        ("gen_ai.response.time_to_first_chunk", record.ttft_s if record.streaming else None),
        ("gen_ai.usage.input_tokens", usage.prompt_tokens),
        ("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens),
        ("gen_ai.usage.output_tokens", usage.completion_tokens),
    )


def _choice(decision: Decision) -> Attributes:
    return {"warmroute.replica": decision.replica, "warmroute.reason": decision.reason.value}


def _turn(record: RequestRecord) -> Attributes:
    turn = record.turn
    if turn is None:
        return {}
    return _known(
        ("warmroute.session", turn.session),
        ("warmroute.turn.number", turn.number),
        ("warmroute.turn.lost_tokens", turn.lost_tokens),
        ("warmroute.turn.cause", turn.cause),
    )


def _of_decision(record: RequestRecord, first: Tried | None, started_s: float) -> Part | None:
    """Return the span of reading and deciding; None for a request that did not come so far."""
    if not record.overhead_s:
        return None
    ended_s = started_s + record.overhead_s
    if first is None:
        return Part("warmroute.decide", SpanKind.INTERNAL, started_s, ended_s, {})
    decision = first.decision
    attributes = _choice(decision) | _known(
        ("warmroute.prompt_tokens", decision.prompt_tokens),
        ("warmroute.matched_tokens", decision.matched_tokens),
        ("warmroute.candidates", len(decision.scores)),
        ("warmroute.home", decision.home),
        ("warmroute.source", record.source),
    )
    # The overhead ends a few microseconds after the attempt has begun.
    return Part("warmroute.decide", SpanKind.INTERNAL, started_s, min(ended_s, first.begun_s), attributes)


def _of_queue(record: RequestRecord, first: Tried | None, started_s: float) -> Part | None:
    """Return the span of waiting for a replica with room; None where there was no waiting."""
    if not record.queued_s:
        return None
    begun_s = started_s + record.overhead_s
    ended_s = begun_s + record.queued_s if first is None else first.begun_s
    return Part("warmroute.queue", SpanKind.INTERNAL, begun_s, max(begun_s, ended_s), {})


def of_attempt(tried: Tried, number: int, method: str) -> Part:
    """Return the span of an attempt; `number` counts from 0."""
    error = _attempt_error(tried)
    attributes = _choice(tried.decision) | _known(
        ("http.request.method", method),
        ("http.request.resend_count", number or None),
        ("http.response.status_code", tried.status),
        ("error.type", error),
        ("warmroute.outcome", tried.outcome),
        ("warmroute.connect_s", None if tried.sent_s is None else max(0.0, tried.sent_s - tried.begun_s)),
    )
    begun_s, ended_s, content_s = tried.begun_s, tried.ended_s, tried.content_s
    return Part("warmroute.attempt", SpanKind.CLIENT, begun_s, ended_s, attributes, error, content_s)


def _attempt_error(tried: Tried) -> str | None:
    """Return what went wrong as the one who asked sees it. That the client left is nobody's fault."""
    if tried.outcome is OutcomeKind.CLIENT_LEFT:
        return None
    if tried.outcome is not OutcomeKind.COMPLETED and (tried.status is None or tried.status < CLIENT_FAULT_STATUS):
        return tried.outcome.value
    return str(tried.status) if tried.status is not None and tried.status >= CLIENT_FAULT_STATUS else None


def _known(*pairs: tuple[str, Value | None]) -> Attributes:
    return {name: value for name, value in pairs if value is not None}


def before_attempts(record: RequestRecord, tried: Sequence[Tried], started_s: float) -> list[Part]:
    """Return the spans of what came before the first attempt."""
    first = tried[0] if tried else None
    found = _of_decision(record, first, started_s), _of_queue(record, first, started_s)
    return [part for part in found if part is not None]
