"""What is pushed to those who watch: an overview now and then, and decisions, of which nobody gets too many."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

import msgspec

from router.core.types import OutcomeKind, ReplicaId
from router.ports import RequestRecord

DECISIONS_PER_S = 20
"""As many as a person can follow, and little beside the requests that they tell of."""

WAITING_DECISIONS = 2 * DECISIONS_PER_S
"""Kept for a listener that does not read; beyond that the oldest are skipped."""


def event(name: str, data: object) -> bytes:
    """Return a server-sent event with JSON as its data, which has no line ends."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


class Listener:
    """One who watches. What he does not take is replaced or skipped, so it never grows."""

    def __init__(self) -> None:
        self._overview = b""
        self._decisions: deque[bytes] = deque()
        self._skipped = 0
        self._woken = asyncio.Event()
        self._closed = False

    def put_overview(self, overview: bytes) -> None:
        """Have an overview sent in place of one that was not taken."""
        self._overview = overview
        self._woken.set()

    def put_decision(self, decision: bytes) -> None:
        """Have a decision sent."""
        if len(self._decisions) == WAITING_DECISIONS:
            self._decisions.popleft()
            self._skipped += 1
        self._decisions.append(decision)
        self._woken.set()

    def skip(self, count: int) -> None:
        """Have it said that so many decisions are not sent."""
        self._skipped += count
        self._woken.set()

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        self._woken.set()

    async def take(self) -> bytes | None:
        """Wait for something to send, and return all there is; None at the end."""
        await self._woken.wait()
        if self._closed:
            return None
        self._woken.clear()
        decisions, skipped, overview = self._decisions, self._skipped, self._overview
        self._decisions, self._skipped, self._overview = deque(), 0, b""
        return b"".join((*decisions, event("skipped", {"count": skipped}) if skipped else b"", overview))


class Feed:
    """The observer that passes decisions on while somebody watches."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.closed = asyncio.Event()
        self._pending: list[RequestRecord] = []
        self._left = DECISIONS_PER_S
        self._skipped = 0

    def request_finished(self, record: RequestRecord) -> None:
        """Take in a decision to be passed on."""
        if not self.listeners or record.decision is None:
            return
        if self._left:
            self._left -= 1
            self._pending.append(record)
        else:
            self._skipped += 1

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Failed attempts are not decisions."""

    def pending(self) -> list[RequestRecord]:
        """Return the decisions that came since the last call, oldest first."""
        pending, self._pending = self._pending, []
        return pending

    def next_second(self) -> int:
        """Begin another second; return how many decisions were too many for the last one."""
        skipped, self._skipped, self._left = self._skipped, 0, DECISIONS_PER_S
        return skipped

    @contextlib.contextmanager
    def listening(self) -> Iterator[Listener]:
        """Have somebody watch until the end of the block."""
        listener = Listener()
        if self.closed.is_set():
            listener.close()
        self.listeners.add(listener)
        try:
            yield listener
        finally:
            self.listeners.discard(listener)
            if not self.listeners:
                self._pending, self._skipped, self._left = [], 0, DECISIONS_PER_S

    def close(self) -> None:
        """End all streams: the router stops."""
        self.closed.set()
        for listener in self.listeners:
            listener.close()
