"""Which prompt blocks are resident, and how much of a prompt that is. What comes and goes is `residency.Mirror`'s."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from router.core.leases import ANSWER_BITS


class Resident:
    """Blocks that are held by requests, and idle ones. What is resident of a prompt is always a prefix."""

    __slots__ = ("_answers", "_held", "_idle")

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        """Block -> how many requests hold it."""
        self._idle: dict[int, int] = {}
        """Block, or key of an answer -> stamp of its last release, ms."""
        self._answers: dict[int, int] = {}
        """Key of an answer -> its bytes."""

    def __len__(self) -> int:
        return len(self._held) + len(self._idle)

    def match(self, hashes: list[int], guess: int = 0) -> int:
        """Return how many leading blocks are resident. A good `guess`, as another replica's match, saves the search."""
        held, idle = self._held, self._idle
        if guess:
            last = hashes[guess - 1]
            if last in idle or last in held:
                if guess == len(hashes):
                    return guess
                after = hashes[guess]
                if after not in idle and after not in held:
                    return guess
        first = hashes[0]
        if first not in idle and first not in held:
            return 0
        low, high = 1, len(hashes)
        while low < high:
            middle = (low + high + 1) >> 1
            block = hashes[middle - 1]
            if block in idle or block in held:
                low = middle
            else:
                high = middle - 1
        return low

    def blocks(self) -> list[int]:
        """Return all resident prompt blocks."""
        return [*self._held, *(block for block in self._idle if block not in self._answers)]

    def used_since(self, hashes: Sequence[int], stamp: int) -> int:
        """Return how many leading blocks are held, or were used after `stamp` (ms): those that others share.

        Who uses a block uses its parents, so it is a binary search.
        """
        held, idle = self._held, self._idle
        return bisect_left(hashes, True, key=lambda block: block not in held and idle.get(block, -1) <= stamp)

    def holds(self, block: int) -> bool:
        """Tell whether a block is resident."""
        return block in self._idle or block in self._held

    def holds_answer(self, leaf: int) -> bool:
        """Tell whether the answer to the prompt that ends in `leaf` is resident."""
        return (leaf ^ ANSWER_BITS) in self._idle
