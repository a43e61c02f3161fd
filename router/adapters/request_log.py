"""One JSON line a request, gathered and written together: a write costs as much as all the rest of a line."""

from __future__ import annotations

import asyncio
from typing import BinaryIO

import msgspec

from router.core.misses.types import TurnAccount
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


class ChangeField(msgspec.Struct):
    """What the client changed of its history."""

    cause: str
    message: int | None
    role: str


class Line(msgspec.Struct, omit_defaults=True):
    """A finished request. What has a default is left out where there is nothing to say."""

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
    retried_ms: float
    connect_ms: float
    prefill_ms: float | None
    decode_ms: float | None
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
    session: str | None = None
    turn: int | None = None
    idle_s: float | None = None
    history_tokens: int | None = None
    lost_tokens: int | None = None
    cause: str | None = None
    change: ChangeField | None = None
    client: str = ""
    error: str | None = None


def _line(record: RequestRecord) -> Line:
    decision, usage, turn = record.decision, record.usage, record.turn
    line = Line(
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
        round(record.retried_s * 1000, 1),
        round(record.connect_s * 1000, 3),
        _ms(record.prefill_s),
        _ms(record.decode_s),
        _ms(record.ttft_s),
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
    if turn is not None:
        _add_turn(line, turn)
    return line


def _ms(time_s: float | None) -> float | None:
    return None if time_s is None else round(time_s * 1000, 1)


def _add_turn(line: Line, turn: TurnAccount) -> None:
    line.session = turn.session
    line.turn = turn.number
    line.history_tokens = turn.history_tokens
    line.lost_tokens = turn.lost_tokens
    line.cause = turn.cause
    if turn.idle_s is not None:
        line.idle_s = round(turn.idle_s, 1)
    if turn.change is not None:
        line.change = ChangeField(turn.change.cause, turn.change.message, turn.change.role)
