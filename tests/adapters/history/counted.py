"""A history of a fleet of two, with a clock that a test moves; records that went to one of them."""

from __future__ import annotations

from typing import Any

from router.adapters.history.counting import History
from router.adapters.history.sessions import SessionLog
from router.adapters.history.showing import window
from router.core.misses.types import Cause, TurnAccount
from tests.core.worlds import fleet_of

START_S = 1_700_000_100.0
RATE = 8_000.0
"""Tokens per second that a replica is taken to prefill before anything is learnt of it."""


class Clock:
    def __init__(self) -> None:
        self.now = START_S

    def __call__(self) -> float:
        return self.now


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.fleet = fleet_of(2)
        self.restart()

    def restart(self) -> None:
        """Have another router begin, which has counted nothing."""
        self.history = History(self.fleet, self.clock, unix_s=0.0)
        self.sessions = SessionLog(self.history.now)

    def window(self, name: str = "5m") -> dict[str, Any]:
        self.history.roll()
        return window(self.history.rolling.totals(name), self.history.series)


def turn(session: str = "s-1", number: int = 2, lost_tokens: int = 0, **fields: Any) -> TurnAccount:
    whole: dict[str, Any] = {
        "session": session,
        "number": number,
        "idle_s": 30.0,
        "history_tokens": 480,
        "cached_tokens": 480 - lost_tokens,
        "lost_tokens": lost_tokens,
        "cause": Cause.EVICTED if lost_tokens else None,
        "change": None,
    }
    return TurnAccount(**(whole | fields))
