"""Residency: a mirror of each engine's block cache, kept from what this router sent there.

vLLM frees a finished request's blocks tail first into one queue and evicts from its head, so a block is never older in
that queue than its descendants and what remains of a prompt is always a prefix. The mirror does the same with prompt
blocks, which makes the match of a prompt a binary search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from router.core.leases import ANSWER_BITS, Lease, Release, Watch, released
from router.core.resident import Resident
from router.core.types import Prompt

ENTRY_BYTES = 220
"""Memory of one idle block in the worst moment, just after its table grew: table slots, its hash, and its place in the
record of its release (64-bit CPython 3.11 to 3.14; tests/core/test_residency.py holds it against tracemalloc)."""

SPARE_BLOCKS = 4_096
"""How many more blocks than twice the idle ones the records of releases may name before they are sorted out."""

FULL_RATIO = 0.95
"""A mirror with less than this of its capacity resident evicts nothing soon: a request's own size is a few per cent."""


class Mirror(Resident):
    """What one replica is believed to hold. Sizes in bytes of canonical prompt.

    An idle block is known by the stamp of its last release, whole milliseconds and never the same twice. Releases stand
    in a queue; a block whose stamp is another by now was used again, and an older release no longer speaks for it.
    """

    __slots__ = (
        "_last_stamp",
        "_leases",
        "_released_blocks",
        "_releases",
        "_unsure",
        "capacity_bytes",
        "epoch",
        "held_bytes",
        "idle_bytes",
        "watch",
    )

    def __init__(self) -> None:
        super().__init__()
        self._leases: dict[int, Lease] = {}
        """Leases not yet released, by identity: what a snapshot knows of requests in flight."""
        self._unsure: set[int] = set()
        """Held blocks that no request is known to have had computed: they are resident if one of their holders does."""
        self._releases: deque[Release] = deque()
        self._released_blocks = 0
        self._last_stamp = -1
        self.watch: Watch | None = None
        self.held_bytes = 0
        self.idle_bytes = 0
        self.capacity_bytes: float = float("inf")
        """Size of the engine's cache, as canonical bytes; infinite until it is known."""
        self.epoch = 0
        """Grows when the replica lost everything: leases of an earlier epoch release nothing."""

    def acquire(self, prompt: Prompt, matched: int) -> Lease:
        """Hold all blocks of a prompt whose first `matched` are resident; the rest counts as resident from now on."""
        held, idle = self._held, self._idle
        hashes, ends = prompt.hashes, prompt.ends_bytes
        stamp = -1
        if matched:
            leaf = hashes[matched - 1]
            stamp = idle.get(leaf, -1)
            if leaf ^ ANSWER_BITS in idle:
                self._drop_answer(leaf ^ ANSWER_BITS)  # the next turn names its blocks itself
        start = 0
        for index in range(matched):
            block, end = hashes[index], ends[index]
            if idle.pop(block, None) is not None:
                held[block] = 1
                self.idle_bytes -= end - start
                self.held_bytes += end - start
            else:
                held[block] += 1
            start = end
        # What follows a match is not resident at all, since what is resident is always a prefix.
        fresh = hashes[matched:]
        held.update(dict.fromkeys(fresh, 1))
        self._unsure.update(fresh)
        if self.watch is not None:
            self.watch.came(fresh)
        self.held_bytes += ends[-1] - start
        lease = Lease(hashes, ends, matched, stamp, self.epoch)
        self._leases[id(lease)] = lease
        return lease

    def _drop_answer(self, key: int) -> None:
        del self._idle[key]
        self.idle_bytes -= self._answers.pop(key)

    def release(
        self, lease: Lease, now: float, computed: bool = True, answer_bytes: int = 0, kind: int = 0
    ) -> None:
        """Give a request's blocks back, tail first: they stay resident, idle, until evicted.

        `computed` False: the request never reached the engine, so blocks that only such requests brought are forgotten.
        `answer_bytes`: size of the generated answer, which is resident behind the prompt. `kind`: see `Release.kind`.
        """
        if lease.epoch != self.epoch:
            return
        del self._leases[id(lease)]
        hashes, size = lease.hashes, lease.ends_bytes[-1]
        self._last_stamp = stamp = max(self._last_stamp + 1, int(now * 1000))
        counts = list(map(self._held.pop, hashes))
        sure = self._count_sure(hashes, computed)
        if sure < len(hashes) or max(counts) > 1:
            self._release_some(lease, counts, stamp, sure)
        else:
            self._idle.update(dict.fromkeys(hashes, stamp))
            self.held_bytes -= size
            self.idle_bytes += size
        if answer_bytes and computed:
            self._keep_answer(hashes[-1] ^ ANSWER_BITS, stamp, answer_bytes)
        # A release names nothing that did not become idle or go on being held: see `resume`.
        self._releases.append(released(lease, stamp, sure, kind))
        self._released_blocks += sure
        self.evict_to(self.capacity_bytes)
        if self._released_blocks > 2 * len(self._idle) + SPARE_BLOCKS:
            self._sort_out_releases()

    def _count_sure(self, hashes: list[int], computed: bool) -> int:
        """Return how many leading blocks are known to be computed: whoever has computed one has its parents, too."""
        unsure = self._unsure
        if computed:
            unsure.difference_update(hashes)
            return len(hashes)
        return next((index for index, block in enumerate(hashes) if block in unsure), len(hashes))

    def _release_some(self, lease: Lease, counts: list[int], stamp: int, sure: int) -> None:
        """Release blocks of which others hold some, or of which only the first `sure` are known to be there."""
        start = 0
        for index, (block, end) in enumerate(zip(lease.hashes, lease.ends_bytes, strict=True)):
            if counts[index] > 1:
                self._held[block] = counts[index] - 1
            else:
                self.held_bytes -= end - start
                if index < sure:
                    self._idle[block] = stamp
                    self.idle_bytes += end - start
                else:
                    self._unsure.discard(block)
                    if self.watch is not None:
                        self.watch.went((block,))
            start = end

    def _keep_answer(self, key: int, stamp: int, answer_bytes: int) -> None:
        self.idle_bytes += answer_bytes - self._answers.get(key, 0)
        self._answers[key] = answer_bytes
        self._idle[key] = stamp

    def evict_to(self, limit_bytes: float) -> None:
        """Evict the least recently used idle blocks until everything resident fits `limit_bytes`."""
        while self._releases and self.held_bytes + self.idle_bytes > limit_bytes:
            self._evict_from_oldest(self.held_bytes + self.idle_bytes - limit_bytes, len(self._idle))

    def evict_unused_since(self, stamp: int) -> int:
        """Evict all idle blocks last used at or before `stamp` (ms); return how many.

        The engine was found to have evicted a block of that age; in LRU order everything older went before it.
        """
        before = len(self._idle)
        while self._releases and self._releases[0].stamp <= stamp:
            self._evict_from_oldest(float("inf"), before)
        return before - len(self._idle)

    def evict_entries(self, count: int) -> None:
        """Evict the `count` least recently used idle blocks, or all there are."""
        goal = len(self._idle) - count
        while self._releases and len(self._idle) > goal:
            self._evict_from_oldest(float("inf"), len(self._idle) - goal)

    def _evict_from_oldest(self, excess_bytes: float, most_blocks: int) -> None:
        """Evict from the oldest release, last block first, what is asked for or all there is.

        What was used again comes first in it (see `_sort_out_releases`), so what is still its own is its end.
        """
        release, idle = self._releases[0], self._idle
        (hashes, ends), stamp = release.unpacked(), release.stamp
        aim_bytes, aim_blocks = self.idle_bytes - excess_bytes, len(idle) - most_blocks
        if idle.get(release.answer) == stamp:
            self._drop_answer(release.answer)
        after = len(hashes)
        first = keep = after - list(map(idle.get, hashes)).count(stamp)
        if first < after:
            # A block goes as long as there is too much without those behind it, and too many are left.
            enough_bytes = ends[-1] - (self.idle_bytes - aim_bytes)
            keep = max(bisect_right(ends, enough_bytes, first), after - max(0, len(idle) - aim_blocks))
            self._forget(hashes[keep:])
            self.idle_bytes -= ends[-1] - (ends[keep - 1] if keep else release.start_bytes)
        if keep > first:
            self._released_blocks -= after - keep
            release.keep(0, keep)
        else:
            self._released_blocks -= after
            self._releases.popleft()

    def _forget(self, blocks: memoryview[int]) -> None:
        idle = self._idle
        for block in blocks:
            del idle[block]
        if self.watch is not None:
            self.watch.went(blocks)

    def _sort_out_releases(self) -> None:
        """Let releases name only what is still theirs.

        A block that was used again had its parents used again too, so what is no longer theirs comes first.
        """
        idle, kept = self._idle, deque[Release]()
        for release in self._releases:
            (hashes, _), first = release.unpacked(), 0
            while first < len(hashes) and idle.get(hashes[first]) != release.stamp:
                first += 1
            release.keep(first, len(hashes))
            if release.hashes or idle.get(release.answer) == release.stamp:
                kept.append(release)
        self._releases = kept
        self._released_blocks = sum(map(len, kept))

    def oldest(self) -> Release | None:
        """Return the release whose blocks are evicted next; None when no block is idle."""
        releases, idle = self._releases, self._idle
        while releases:
            release = releases[0]
            # Who used its last block again used all of its blocks again.
            if release.hashes and idle.get(release.unpacked()[0][-1]) == release.stamp:
                return release
            if idle.get(release.answer) == release.stamp:
                return release
            self._released_blocks -= len(release)
            releases.popleft()
        return None

    def oldest_stamp(self) -> int | None:
        """Return when the blocks next to be evicted were last used, in ms; None when no block is idle."""
        oldest = self.oldest()
        return None if oldest is None else oldest.stamp

    @property
    def fill_ratio(self) -> float | None:
        """Return what is resident / capacity; None while the capacity is not known."""
        known = self.capacity_bytes not in (0.0, float("inf"))
        return (self.held_bytes + self.idle_bytes) / self.capacity_bytes if known else None

    def eviction_age_s(self, now: float) -> float | None:
        """Return for how long what is evicted next was not used; None while nothing need be evicted."""
        oldest = self.oldest_stamp()
        if oldest is None or (self.fill_ratio or 0.0) < FULL_RATIO:
            return None
        return max(0.0, now - oldest / 1000)

    def releases(self, now: float) -> list[Release]:
        """Return the releases that would be there if all requests in flight ended now, least recently used first.

        They change with the mirror: to be copied at once.
        """
        stamp = max(self._last_stamp + 1, int(now * 1000))
        leases = enumerate(self._leases.values(), stamp)
        return [*self._releases, *(released(lease, number, len(lease.hashes)) for number, lease in leases)]

    def answers(self) -> tuple[Iterable[int], Iterable[int], Iterable[int]]:
        """Return of each resident answer its key, its stamp and its bytes."""
        return self._answers.keys(), map(self._idle.__getitem__, self._answers), self._answers.values()

    def resume(self, releases: Iterable[Release], answers: Iterable[tuple[int, int, int]]) -> None:
        """Fill an empty mirror with what another one's `releases` and `answers` said; it may exceed its capacity.

        The last release that names a block speaks for it. What was evicted no release names any more.
        """
        for release in releases:
            self._idle.update(dict.fromkeys(release.unpacked()[0], release.stamp))
            self._releases.append(release)
            self._last_stamp = release.stamp
        for key, stamp, answer_bytes in answers:
            self._keep_answer(key, stamp, answer_bytes)
        self._sort_out_releases()
        if self.watch is not None:
            self.watch.came(self.blocks())
        self.idle_bytes += sum(release.size_bytes for release in self._releases)

    def clear(self) -> None:
        """Forget everything: the replica restarted with an empty cache."""
        if self.watch is not None:
            self.watch.went(self.blocks())
        self._held, self._idle, self._answers, self._leases = {}, {}, {}, {}
        self._unsure.clear()
        self._releases.clear()
        self._released_blocks = self.held_bytes = self.idle_bytes = 0
        self.epoch += 1
