"""One JSON line a request, gathered and written together: a write costs as much as all the rest of a line."""

from __future__ import annotations

import asyncio
from typing import BinaryIO

import msgspec

from router.core.types import OutcomeKind, ReplicaId
from router.ports import RequestRecord

FLUSH_S = 0.1
"""How long a line may wait for others."""

FLUSH_BYTES = 1 << 16
"""A pipe's capacity: more is not gathered."""

_encode = msgspec.json.Encoder().encode


class RequestLog:
    """An observer that writes to a binary stream; it belongs to the event loop it is first told something in."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._size_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def request_finished(self, record: RequestRecord) -> None:
        """Write a line on a finished request."""
        self._add(_encode(_line(record)))

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Write a line on a failed attempt."""
        self._add(_encode({"event": "attempt_failed", "replica": replica, "kind": kind}))

    def _add(self, line: bytes) -> None:
        self._lines += (line, b"\n")
        self._size_bytes += len(line)
        if self._size_bytes >= FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        """Write what has been gathered. A stream that is gone loses lines and stops nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines, self._size_bytes = self._lines, [], 0
        try:
            self._stream.write(b"".join(lines))
            self._stream.flush()
        except (OSError, ValueError):
            return


class _Line(msgspec.Struct, omit_defaults=True):
    event: str
    request_id: str
    method: str
    path: str
    model: str
    status: int
    outcome: str | None
    attempts: int
    overhead_ms: float
    queued_ms: float
    ttft_ms: float | None
    total_ms: float
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    replica: str | None = None
    reason: str | None = None
    matched_tokens: int | None = None
    source: str | None = None
    client: str = ""
    error: str | None = None


def _line(record: RequestRecord) -> _Line:
    decision, usage = record.decision, record.usage
    line = _Line(
        "request_finished",
        record.request_id,
        record.method,
        record.path,
        record.model,
        record.status,
        record.outcome,
        record.attempts,
        round(record.overhead_s * 1000, 3),
        round(record.queued_s * 1000, 1),
        None if record.ttft_s is None else round(record.ttft_s * 1000, 1),
        round(record.total_s * 1000, 1),
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
        usage.finish_reason,
        source=record.source,
        client=record.client,
        error=record.error,
    )
    if decision is not None:
        line.replica = decision.replica
        line.reason = decision.reason
        line.matched_tokens = decision.matched_tokens
    return line
