"""The index: everything remembered of prompts and sessions, within one budget of memory."""

from __future__ import annotations

from router.core.bounded import LINK_BYTES, BoundedMap
from router.core.leases import Lease
from router.core.residency import ENTRY_BYTES, Mirror
from router.core.tokens import TurnEnds
from router.core.types import Prompt, ReplicaId

LINKS_SHARE = 0.2
"""Share of the budget for turn ends and for session homes together; blocks have the rest."""

EVICTION_BATCH = 64
"""Idle blocks forgotten at a time when the index is full: a scan for the stalest mirror per batch, not per block."""


class Index:
    """All mirrors, turn ends and homes. A mirror that was never added, or has left, is kept but does not count."""

    __slots__ = ("_blocks", "_blocks_bytes", "_entry_bytes", "_mirrors", "homes", "turns")

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` bounds the memory of all entries, each taken at its worst moment."""
        link_limit = max(1, int(limit_bytes * LINKS_SHARE / 2 / LINK_BYTES))
        self._blocks_bytes = limit_bytes - 2 * link_limit * LINK_BYTES
        self._entry_bytes = ENTRY_BYTES
        self._mirrors: dict[int, Mirror] = {}
        self._blocks = 0
        self.turns = TurnEnds(link_limit)
        self.homes: BoundedMap[ReplicaId] = BoundedMap(link_limit)
        """Session hash -> the replica its last turn ran on; stored object's hash -> the replica that stores it."""

    @property
    def size_bytes(self) -> int:
        """Memory of the index, each entry at its worst moment (see `ENTRY_BYTES` and `LINK_BYTES`)."""
        return self._blocks * self._entry_bytes + (len(self.turns) + len(self.homes)) * LINK_BYTES

    def add(self, mirror: Mirror) -> None:
        """Count a mirror in, with what it holds."""
        if id(mirror) not in self._mirrors:
            self._mirrors[id(mirror)] = mirror
            self._blocks += len(mirror)

    def remove(self, mirror: Mirror) -> None:
        """Count a mirror out: its replica has left."""
        if self._mirrors.pop(id(mirror), None) is not None:
            self._blocks -= len(mirror)

    def list_elsewhere(self, bytes_each: int) -> None:
        """Count so many bytes more for each block: another table names it, too."""
        self._entry_bytes = ENTRY_BYTES + bytes_each
        self.make_room()

    def hold(self, mirror: Mirror, prompt: Prompt) -> Lease | None:
        """Hold a prompt's blocks, which are resident from now on; None where the index has no room for them."""
        if not self.make_room(len(prompt.hashes)):
            return None
        before = len(mirror)
        lease = mirror.acquire(prompt, mirror.match(prompt.hashes))
        mirror.evict_to(mirror.capacity_bytes)
        self._count(mirror, before)
        return lease

    def release(
        self, mirror: Mirror, lease: Lease, now: float, computed: bool = True, answer_bytes: int = 0, kind: int = 0
    ) -> None:
        """Give a lease back (see `Mirror.release`)."""
        before = len(mirror)
        mirror.release(lease, now, computed, answer_bytes, kind)
        self._count(mirror, before)
        self.make_room()  # the answer came to what was held

    def learn(self, mirror: Mirror, prompt: Prompt, now: float) -> None:
        """Take a prompt for resident and idle, on somebody else's word."""
        lease = self.hold(mirror, prompt)
        if lease is not None:
            self.release(mirror, lease, now)

    def evict_unused_since(self, mirror: Mirror, stamp: int) -> None:
        """See `Mirror.evict_unused_since`."""
        before = len(mirror)
        mirror.evict_unused_since(stamp)
        self._count(mirror, before)

    def clear(self, mirror: Mirror) -> None:
        """Forget what a replica held."""
        before = len(mirror)
        mirror.clear()
        self._count(mirror, before)

    def _count(self, mirror: Mirror, before: int) -> None:
        if id(mirror) in self._mirrors:
            self._blocks += len(mirror) - before

    def make_room(self, blocks: int = 0) -> bool:
        """Forget the stalest blocks of all mirrors until `blocks` more fit; False when too many are in use."""
        while (self._blocks + blocks) * self._entry_bytes > self._blocks_bytes:
            idle = [(stamp, m) for m in self._mirrors.values() if (stamp := m.oldest_stamp()) is not None]
            if not idle:
                return False
            stalest = min(idle, key=lambda pair: pair[0])[1]
            before = len(stalest)
            stalest.evict_entries(EVICTION_BATCH)
            self._count(stalest, before)
        return True
