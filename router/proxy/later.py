"""Work that nobody waits for, done for several requests in a row.

The same work takes a third to a half less then: its code and its tables stay in the processor's caches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from router.ports import RequestRecord

LOGGER = logging.getLogger("warmroute.later")

GATHER_S = 0.02
"""For how long work is gathered: nobody who looks at a log or a page notices."""

AT_ONCE = 64
"""Pieces of work, or records, that are gathered at the most: a millisecond or two, which no stream notices."""

Work = Callable[[], RequestRecord | None]
"""May bring about the record of a request that has ended."""


class Later:
    """Work in the order in which it came up; it belongs to the event loop it is first given some in."""

    def __init__(self, tell: Callable[[Sequence[RequestRecord]], None]) -> None:
        """`tell`: who is told of requests that have ended."""
        self._tell = tell
        self._work: list[Work] = []
        self._records: list[RequestRecord] = []
        self._timer: asyncio.TimerHandle | None = None

    def put(self, work: Work) -> None:
        """Have something done soon, after all that was put here before."""
        self._work.append(work)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self.flush)
        if len(self._work) >= AT_ONCE:
            self.work()

    def work(self) -> None:
        """Do all work now. Whoever is told of it may be told later."""
        work, self._work = self._work, []
        for piece in work:
            try:
                record = piece()
            except Exception:
                LOGGER.exception("something was not accounted for")
            else:
                if record is not None:
                    self._records.append(record)
        if len(self._records) >= AT_ONCE:
            self._tell_all()

    def flush(self) -> None:
        """Do all work, and tell of it, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.work()
        self._tell_all()

    def _tell_all(self) -> None:
        records, self._records = self._records, []
        if records:
            try:
                self._tell(records)
            except Exception:
                LOGGER.exception("of something nobody was told")
