"""One structured line a request, through the standard logging module: nothing is formatted while it is off."""

from __future__ import annotations

import logging

import msgspec

from router.core.types import OutcomeKind, ReplicaId
from router.ports import RequestRecord

LOGGER = logging.getLogger("warmroute.requests")


class RequestLog:
    """An observer that writes a JSON line per request at level INFO, and one per failed attempt at WARNING."""

    def request_finished(self, record: RequestRecord) -> None:
        """Log a finished request."""
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info(msgspec.json.encode(_line(record)).decode())

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Log a failed attempt."""
        LOGGER.warning('{"event":"attempt_failed","replica":"%s","kind":"%s"}', replica, kind)


def _line(record: RequestRecord) -> dict[str, object]:
    decision, usage = record.decision, record.usage
    line: dict[str, object] = {
        "event": "request_finished",
        "request_id": record.request_id,
        "method": record.method,
        "path": record.path,
        "model": record.model,
        "status": record.status,
        "outcome": record.outcome,
        "attempts": record.attempts,
        "overhead_ms": round(record.overhead_s * 1000, 3),
        "ttft_ms": None if record.ttft_s is None else round(record.ttft_s * 1000, 1),
        "total_ms": round(record.total_s * 1000, 1),
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "finish_reason": usage.finish_reason,
    }
    if decision is not None:
        line["replica"] = decision.replica
        line["reason"] = decision.reason
        line["matched_tokens"] = decision.matched_tokens
    if record.error is not None:
        line["error"] = record.error
    return line
