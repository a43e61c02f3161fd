"""How long an answer of Redis is waited for before it counts as late, our own hiccups not counted."""

from __future__ import annotations

import asyncio

from router.adapters.redis_store.link import Link

GRACE_S = 0.001
"""What a timer leaves of its deadline for the event loop to read what has come: timers run before sockets are read, so
after a stall an answer that lies there would be taken for late."""

STALL_S = 0.002
"""A timer that runs later than this says that we were busy, and nothing of Redis."""


class Patience:
    """A watch over one batch on its way, which tells the link its verdict. Questions have timers of their own."""

    __slots__ = ("_deadline_s", "_due_s", "_judged", "_link", "_loop", "_timer")

    def __init__(self, link: Link, deadline_s: float) -> None:
        """Begin to wait."""
        self._link = link
        self._deadline_s = deadline_s
        self._judged = False
        self._loop = asyncio.get_running_loop()
        self._due_s = self._loop.time() + max(0.0, deadline_s - GRACE_S)
        self._timer = self._loop.call_at(self._due_s, self._due)

    def _due(self) -> None:
        if self._loop.time() - self._due_s > STALL_S:
            self._judged = True
        else:
            self._timer = self._loop.call_later(GRACE_S, self._late)

    def _late(self) -> None:
        self._judged = True
        self._link.late(self._deadline_s)

    def answered(self) -> None:
        """An answer came: in time, unless it was late already."""
        self._timer.cancel()
        if not self._judged:
            self._link.quick()

    def stop(self) -> None:
        """Wait no longer. Whoever calls tells the link why, or that it was `answered`."""
        self._timer.cancel()
