"""The order of an engine's batches: what comes next, what was missed, when it is another engine."""

from __future__ import annotations

from enum import Enum, auto

import xxhash


class Place(Enum):
    """What a batch is by its number."""

    NEXT = auto()
    """It follows the last one."""
    KNOWN = auto()
    """It was taken in before, by a replay."""
    MISSED = auto()
    """Batches before it are missing."""
    RESTARTED = auto()
    """The engine has begun to count anew: it is another process, with an empty cache."""


class Order:
    """Follows the numbers of one engine's batches, which begin at 0 and have no gaps."""

    __slots__ = ("_last_digest", "_last_live", "next")

    def __init__(self) -> None:
        self.next = 0
        """Number of the batch that is waited for."""
        self._last_live = -1
        self._last_digest: int | None = None

    def place(self, number: int) -> Place:
        """Tell what a published batch is. What one subscription brings never goes back, unless the engine does."""
        went_back = number <= self._last_live
        self._last_live = number
        if went_back:
            return Place.RESTARTED
        if number == self.next:
            return Place.NEXT
        return Place.KNOWN if number < self.next else Place.MISSED

    def took(self, number: int, payload: bytes) -> None:
        """Note that a batch was taken in."""
        self.next = number + 1
        self._last_digest = xxhash.xxh3_64_intdigest(payload)

    def is_last(self, number: int, payload: bytes) -> bool:
        """Tell whether a batch is the last that was taken in: a restarted engine has another under its number."""
        return number == self.next - 1 and xxhash.xxh3_64_intdigest(payload) == self._last_digest

    def begin_anew(self) -> None:
        """Wait for the first batch again. What was published last stays known: it may be of the new engine."""
        self.next = 0
        self._last_digest = None
