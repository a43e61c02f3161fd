"""Sessions whose KV blocks stay held between two turns, so that nobody else can have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.sim.blocks import BlockPool


@dataclass(frozen=True, slots=True)
class PinRules:
    """What is pinned. No vLLM does it: this is here to be compared with."""

    hold_s: float
    """After a turn; who is not back by then has lost the pin."""
    share_ratio: float = 0.5
    """Of the cache at most, 0 to 1: the rest is for requests that run. A turn that finds no room is not pinned."""


class Pins:
    """The pins of one engine. A turn that goes on from a pinned one takes its place."""

    __slots__ = ("_capacity_blocks", "_hold_s", "_pinned", "_pool", "_used_blocks")

    def __init__(self, pool: BlockPool, rules: PinRules) -> None:
        self._pool = pool
        self._hold_s = rules.hold_s
        self._capacity_blocks = int((pool.num_blocks - 1) * rules.share_ratio)
        self._pinned: dict[int, tuple[list[int], float]] = {}
        """By the hash of the last block, in the order in which they end."""
        self._used_blocks = 0

    @property
    def used_blocks(self) -> int:
        """Of all pins; a block of two counts twice."""
        return self._used_blocks

    def pin(self, hashes: Sequence[int], now: float) -> None:
        """Hold what is cached of a turn that ended."""
        blocks = self._pool.longest_hit(hashes, len(hashes))
        if not blocks or self._used_blocks + len(blocks) > self._capacity_blocks:
            return
        self._pool.touch(blocks)
        self._let_go(hashes[len(blocks) - 1])
        self._pinned[hashes[len(blocks) - 1]] = (blocks, now + self._hold_s)
        self._used_blocks += len(blocks)

    def resume(self, hashes: Sequence[int]) -> None:
        """Let go of what a turn goes on from: it holds it now itself."""
        pinned = self._pinned
        for block_hash in [known for known in hashes if known in pinned]:
            self._let_go(block_hash)

    def expire(self, now: float) -> None:
        """Let go of sessions that did not come back in time."""
        while self._pinned:
            oldest = next(iter(self._pinned))
            if self._pinned[oldest][1] > now:
                return
            self._let_go(oldest)

    def yield_oldest(self) -> bool:
        """Let go of the oldest pin; False where there is none."""
        if not self._pinned:
            return False
        self._let_go(next(iter(self._pinned)))
        return True

    def _let_go(self, block_hash: int) -> None:
        blocks, _ = self._pinned.pop(block_hash, ([], 0.0))
        self._used_blocks -= len(blocks)
        self._pool.release(blocks)
