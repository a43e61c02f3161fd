"""Residency: a mirror of each engine's block cache, kept from what this router sent there.

vLLM frees a finished request's blocks tail first into one queue and evicts from its head, so a block is never older in
that queue than its descendants and what remains of a prompt is always a prefix. The mirror does the same with prompt
blocks, which makes the match of a prompt a binary search.
"""

from __future__ import annotations

from collections import OrderedDict
from operator import sub
from typing import NamedTuple

from router.core.types import Prompt

ENTRY_BYTES = 260
"""Memory of one idle block in the worst moment, just after its table grew: ordered-dict node, table slots, key and
value integers (64-bit CPython 3.11 to 3.14; tests/core/test_residency.py holds it against tracemalloc)."""

_SIZE_BITS = 24
_SIZE_MASK = (1 << _SIZE_BITS) - 1
_ANSWER_BIT = 0x5BD1E995_5BD1E995
"""Key of an answer's blocks: its prompt's last hash with these bits turned over."""


class Lease(NamedTuple):
    """The blocks that one request holds on one replica while it runs."""

    hashes: list[int]
    ends_bytes: list[int]
    fresh_from: int
    """Index of the first block that was not resident when the request was sent."""
    stale_stamp: int
    """When the deepest matched block was last used, in ms; -1 when it was in use or nothing matched."""
    epoch: int


class Mirror:
    """What one replica is believed to hold. Sizes in bytes of canonical prompt; stamps in whole milliseconds."""

    __slots__ = ("_held", "_idle", "capacity_bytes", "epoch", "held_bytes", "idle_bytes")

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._idle: OrderedDict[int, int] = OrderedDict()
        self.held_bytes = 0
        self.idle_bytes = 0
        self.capacity_bytes: float = float("inf")
        """Size of the engine's cache, as canonical bytes; infinite until it is known."""
        self.epoch = 0
        """Grows when the replica lost everything: leases of an earlier epoch release nothing."""

    def __len__(self) -> int:
        return len(self._held) + len(self._idle)

    def __contains__(self, block: int) -> bool:
        return block in self._held or block in self._idle

    def match(self, hashes: list[int]) -> int:
        """Return how many leading blocks are resident."""
        held, idle = self._held, self._idle
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

    def holds_answer(self, leaf: int) -> bool:
        """Tell whether the answer to the prompt that ends in `leaf` is resident."""
        return (leaf ^ _ANSWER_BIT) in self._idle

    def acquire(self, prompt: Prompt, matched: int) -> Lease:
        """Hold all blocks of a prompt whose first `matched` are resident; the rest counts as resident from now on."""
        held, idle = self._held, self._idle
        hashes, ends = prompt.hashes, prompt.ends_bytes
        stamp = -1
        if matched:
            deepest = idle.get(hashes[matched - 1])
            if deepest is not None:
                stamp = deepest >> _SIZE_BITS
            answer = idle.pop(hashes[matched - 1] ^ _ANSWER_BIT, None)
            if answer is not None:
                self.idle_bytes -= answer & _SIZE_MASK
        moved = shared = 0
        for index in range(matched):
            block = hashes[index]
            count = held.get(block)
            if count is None:
                held[block] = 1
                moved += idle.pop(block) & _SIZE_MASK
            else:
                held[block] = count + 1
                shared += ends[index] - (ends[index - 1] if index else 0)
        # What follows a match is not resident at all, since what is resident is always a prefix.
        held.update(dict.fromkeys(hashes[matched:], 1))
        self.idle_bytes -= moved
        self.held_bytes += ends[-1] - shared
        return Lease(hashes, ends, matched, stamp, self.epoch)

    def release(self, lease: Lease, now: float, computed: bool = True, answer_bytes: int = 0) -> None:
        """Give a request's blocks back, tail first: they stay resident, idle, until evicted.

        `computed` False: the request never reached the engine, so blocks that only it brought are forgotten.
        `answer_bytes`: size of the generated answer, which is resident behind the prompt.
        """
        if lease.epoch != self.epoch:
            return
        held, idle, hashes = self._held, self._idle, lease.hashes
        stamp = int(now * 1000) << _SIZE_BITS
        if answer_bytes and computed:
            self._add_idle(hashes[-1] ^ _ANSWER_BIT, stamp, min(answer_bytes, _SIZE_MASK))
        counts = list(map(held.pop, hashes))
        if max(counts) > 1 or not computed:
            self._release_some(lease, counts, stamp, computed)
        else:
            ends = lease.ends_bytes
            sizes = list(map(sub, ends, [0, *ends]))
            idle.update(zip(reversed(hashes), [stamp | size for size in reversed(sizes)], strict=True))
            self.held_bytes -= ends[-1]
            self.idle_bytes += ends[-1]
        self.evict_to(self.capacity_bytes)

    def _release_some(self, lease: Lease, counts: list[int], stamp: int, computed: bool) -> None:
        """Release blocks of which others hold some, or which the engine never saw."""
        hashes, ends = lease.hashes, lease.ends_bytes
        for index in range(len(hashes) - 1, -1, -1):
            block = hashes[index]
            if counts[index] > 1:
                self._held[block] = counts[index] - 1
                continue
            size = ends[index] - (ends[index - 1] if index else 0)
            self.held_bytes -= size
            if computed or index < lease.fresh_from:
                self._idle[block] = stamp | size
                self.idle_bytes += size

    def _add_idle(self, key: int, stamp: int, size: int) -> None:
        previous = self._idle.pop(key, None)
        if previous is not None:
            self.idle_bytes -= previous & _SIZE_MASK
        self._idle[key] = stamp | size
        self.idle_bytes += size

    def evict_to(self, limit_bytes: float) -> None:
        """Evict the least recently used idle blocks until everything resident fits `limit_bytes`."""
        while self._idle and self.held_bytes + self.idle_bytes > limit_bytes:
            self._evict_oldest()

    def evict_unused_since(self, stamp: int) -> int:
        """Evict all idle blocks last used at or before `stamp` (ms); return how many.

        The engine was found to have evicted a block of that age; in LRU order everything older went before it.
        """
        before = len(self._idle)
        while self._idle and next(iter(self._idle.values())) >> _SIZE_BITS <= stamp:
            self._evict_oldest()
        return before - len(self._idle)

    def evict_entries(self, count: int) -> None:
        """Evict the `count` least recently used idle blocks, or all there are."""
        for _ in range(min(count, len(self._idle))):
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        _, packed = self._idle.popitem(last=False)
        self.idle_bytes -= packed & _SIZE_MASK

    def oldest_stamp(self) -> int | None:
        """Return when the next block to be evicted was last used, in ms; None when no block is idle."""
        return next(iter(self._idle.values())) >> _SIZE_BITS if self._idle else None

    def clear(self) -> None:
        """Forget everything: the replica restarted with an empty cache."""
        self._held = {}
        self._idle = OrderedDict()
        self.held_bytes = self.idle_bytes = 0
        self.epoch += 1
