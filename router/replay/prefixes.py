"""A cache of prompts by their chained block hashes: least recently used ones go first, tails before heads."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

SPARE_BLOCKS = 4_096
"""How many more blocks than twice the held ones the record of uses may name before it is sorted out."""


class PrefixCache:
    """What a prefix index or a cache without fragmentation holds. What it holds of a prompt is always a prefix.

    Uses stand in a queue. A block whose stamp is another by now was used again, and an older use no longer speaks for
    it.
    """

    __slots__ = ("_stamp", "_stamps", "_used", "_used_blocks", "capacity_blocks")

    def __init__(self, capacity_blocks: int | None = None) -> None:
        """`capacity_blocks`: None never evicts."""
        self.capacity_blocks = capacity_blocks
        self._stamps: dict[int, int] = {}
        self._stamp = 0
        self._used: deque[tuple[int, list[int]]] = deque()
        self._used_blocks = 0

    def __len__(self) -> int:
        return len(self._stamps)

    def match(self, hashes: Sequence[int]) -> int:
        """Return how many leading blocks are held."""
        stamps = self._stamps
        if not hashes or hashes[0] not in stamps:
            return 0
        low, high = 1, len(hashes)
        while low < high:
            middle = (low + high + 1) >> 1
            if hashes[middle - 1] in stamps:
                low = middle
            else:
                high = middle - 1
        return low

    def use(self, hashes: Sequence[int]) -> None:
        """Hold a prompt's blocks as the most recently used ones; evict what has no room any more."""
        self._stamp += 1
        self._stamps.update(dict.fromkeys(hashes, self._stamp))
        if self.capacity_blocks is None:
            return
        self._used.append((self._stamp, list(hashes)))
        self._used_blocks += len(hashes)
        while len(self._stamps) > self.capacity_blocks:
            self._evict_from_oldest(len(self._stamps) - self.capacity_blocks)
        if self._used_blocks > 2 * len(self._stamps) + SPARE_BLOCKS:
            self._sort_out()

    def clear(self) -> None:
        """Forget everything."""
        self._stamps.clear()
        self._used.clear()
        self._used_blocks = 0

    def _evict_from_oldest(self, excess: int) -> None:
        stamp, hashes = self._used[0]
        stamps = self._stamps
        while hashes and excess:
            block = hashes.pop()
            self._used_blocks -= 1
            if stamps.get(block) == stamp:
                del stamps[block]
                excess -= 1
        if not hashes:
            self._used.popleft()

    def _sort_out(self) -> None:
        """Let uses name only what is still theirs: who uses a block uses its parents, so the rest comes first."""
        stamps, kept = self._stamps, deque[tuple[int, list[int]]]()
        for stamp, hashes in self._used:
            first = next((index for index, block in enumerate(hashes) if stamps.get(block) == stamp), len(hashes))
            if first < len(hashes):
                kept.append((stamp, hashes[first:]))
        self._used = kept
        self._used_blocks = sum(len(hashes) for _, hashes in kept)
