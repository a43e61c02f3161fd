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
