"""Where requests wait for a replica that has room: the queue's clock, and the way back to whoever waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from router.core.admission import TICK_S, Admission
from router.core.ticket import Ticket
from router.core.types import ReplicaId
from router.core.waiting import Waiting

UNSERVED_TICKS = 25
"""Ticks between two looks for those whose model nobody serves any more: twice a second."""


class Held(Protocol):
    """A request that waits."""

    def go(self, ticket: Ticket) -> None:
        """It is its turn; it is counted in already."""

    def waited_too_long(self, wait_s: float) -> None:
        """It has waited for as long as is allowed, or must make room; `wait_s`: how long it would still have waited."""

    def nobody_serves(self) -> None:
        """No replica serves its model any more."""


class WaitingRoom:
    """All requests that wait in this router."""

    def __init__(self, admission: Admission, counted_in: Callable[[Ticket], None], clock: Callable[[], float]) -> None:
        """`counted_in` is told of every request that is sent from here."""
        self._admission = admission
        self._counted_in = counted_in
        self._clock = clock
        self._held: dict[int, Held] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, waiting: Waiting, who: Held) -> None:
        """Let somebody wait."""
        self._held[waiting.number] = who
        self._wind_up()

    def leave(self, waiting: Waiting) -> None:
        """Let somebody go whose client has gone."""
        self._held.pop(waiting.number, None)
        self._admission.leave(waiting)

    def released(self, replica_id: ReplicaId) -> None:
        """Look who may be sent: a replica may have room."""
        if self._held and not self._closed:
            self._send(self._admission.released(replica_id, self._clock()))

    def _wind_up(self) -> None:
        if self._timer is None and self._held and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._look(self._clock())
        finally:
            self._wind_up()

    def _look(self, now: float) -> None:
        admission = self._admission
        self._ticks += 1
        self._send(admission.tick(now))
        self._send(admission.reconsider(now))
        if self._ticks % UNSERVED_TICKS == 0:
            for waiting in admission.unserved():
                if who := self._let_go(waiting):
                    who.nobody_serves()
        for waiting in admission.overdue(now):
            wait_s = admission.predicted_wait_s(waiting, now)
            if who := self._let_go(waiting):
                who.waited_too_long(wait_s)

    def _let_go(self, waiting: Waiting) -> Held | None:
        """Take one out; return who is to be told. None: its client has gone meanwhile."""
        self._admission.leave(waiting)
        return self._held.pop(waiting.number, None)

    def _send(self, sent: Iterable[tuple[Waiting, Ticket]]) -> None:
        """Send requests, all counted in before the first goes: what that sets off must find the books in order."""
        for waiting, ticket in list(sent):
            self._counted_in(ticket)
            self._held.pop(waiting.number).go(ticket)

    def close(self) -> None:
        """Send nobody any more: those who wait are about to be told."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
