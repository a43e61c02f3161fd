"""Fair shares of one replica's work, by start-time fair queueing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

FEWEST = 64
"""Below so many keys nothing is tidied up."""

K = TypeVar("K")


class Shares(Generic[K]):
    """Who has had how much: start-time fair queueing (Goyal, Vin and Cheng, 1996).

    Whoever has had least is next. One that has been away comes back level with those that wait: it brings nothing that
    it did not use, and keeps what it has had too much.
    """

    __slots__ = ("_had_s", "_level_s", "_tidy_at")

    def __init__(self) -> None:
        self._had_s: dict[K, float] = {}
        self._level_s = 0.0
        self._tidy_at = FEWEST

    def had_s(self, key: K) -> float:
        """Return what `key` has had, comparable with others'."""
        return max(self._level_s, self._had_s.get(key, 0.0))

    def least_s(self, waiting: Iterable[K]) -> float:
        """Return what whoever has had least has had of all that wait, at least one; nobody comes in below that.

        To be asked before each turn. Had it risen to what those have had that are served, others that wait and have had
        less would lose what they are owed.
        """
        self._level_s = max(self._level_s, min(map(self.had_s, waiting)))
        return self._level_s

    def charge(self, key: K, work_s: float) -> None:
        """Count work done for `key`, by its weight."""
        self._had_s[key] = self.had_s(key) + work_s
        if len(self._had_s) >= self._tidy_at:
            self._had_s = {key: had_s for key, had_s in self._had_s.items() if had_s > self._level_s}
            self._tidy_at = FEWEST + 2 * len(self._had_s)
