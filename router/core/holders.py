"""Which replicas hold a prompt block, told by their mirrors as they change: the mirrors read the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from router.core.replica import Replica

HOLDER_BYTES = 110
"""Memory of one block here in the worst moment, just after the table grew. The hash itself is the mirror's (64-bit
CPython 3.11 to 3.14; tests/core/test_holders.py holds it against tracemalloc)."""


class Holders:
    """Blocks -> replicas. What a replica holds is always prefixes, so what anybody holds is, too."""

    __slots__ = ("_by_block",)

    def __init__(self) -> None:
        self._by_block: dict[int, Replica | list[Replica]] = {}

    def __len__(self) -> int:
        return len(self._by_block)

    def follow(self, replica: Replica) -> None:
        """Take in what a replica holds, and what it will."""
        watch = replica.mirror.watch = _Watch(self._by_block, replica)
        watch.came(replica.mirror.blocks())

    def forget(self, replica: Replica) -> None:
        """Let go of a replica that has left."""
        if replica.mirror.watch is not None:
            replica.mirror.watch.went(replica.mirror.blocks())
            replica.mirror.watch = None

    def of(self, block: int) -> list[Replica]:
        """Return who holds a block, in no order. To be read only."""
        found = self._by_block.get(block)
        if found is None:
            return []
        return found if isinstance(found, list) else [found]

    def levels(self, hashes: list[int]) -> Iterator[list[Replica]]:
        """Yield who holds most of a prompt, then all who hold less, and so on: each list has all of the one before."""
        count, blocks = 0, len(hashes)
        while blocks := self._deepest(hashes, blocks, count):
            holders = self.of(hashes[blocks - 1])
            yield holders
            count = len(holders)
            blocks -= 1

    def _deepest(self, hashes: list[int], blocks: int, count: int) -> int:
        """Return how many leading blocks, of the first `blocks`, more than `count` replicas hold."""
        if not blocks or len(self.of(hashes[0])) <= count:
            return 0
        low, high = 1, blocks
        while low < high:
            middle = (low + high + 1) >> 1
            if len(self.of(hashes[middle - 1])) > count:
                low = middle
            else:
                high = middle - 1
        return low


class _Watch:
    """One replica's blocks, as its mirror tells of them."""

    __slots__ = ("_by_block", "_replica")

    def __init__(self, by_block: dict[int, Replica | list[Replica]], replica: Replica) -> None:
        self._by_block, self._replica = by_block, replica

    def came(self, blocks: Iterable[int]) -> None:
        by_block, replica = self._by_block, self._replica
        for block in blocks:
            found = by_block.setdefault(block, replica)
            if found is replica:
                continue
            if isinstance(found, list):
                found.append(replica)
            else:
                by_block[block] = [found, replica]

    def went(self, blocks: Iterable[int]) -> None:
        by_block, replica = self._by_block, self._replica
        for block in blocks:
            found = by_block[block]
            if not isinstance(found, list):
                del by_block[block]
                continue
            found.remove(replica)
            if len(found) == 1:
                by_block[block] = found[0]
