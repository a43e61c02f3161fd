"""Leases: the blocks that a request holds on a replica while it runs, and the record of what it gave back."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple, Protocol

import msgspec

ANSWER_BITS = 0x5BD1E995_5BD1E995
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


class Release(msgspec.Struct, gc=False):
    """What one request released: blocks to evict, from the last one on, unless they were used again since.

    There are as many as finished requests. Numbers packed into bytes, in a struct without garbage collection, keep them
    out of the collector's sight: with lists it stopped the process for 0.2 s at 600,000 blocks.
    """

    stamp: int
    answer: int
    """Key of the answer behind the blocks."""
    hashes: bytes
    ends_bytes: bytes
    """As `hashes`, a 64-bit number for each block."""
    start_bytes: int = 0
    """Where the first of the blocks begins."""
    kind: int = 0
    """Index in `curves.CLASSES` of the turn that ended: how likely it is to go on."""

    def __len__(self) -> int:
        return len(self.hashes) // 8

    def unpacked(self) -> tuple[memoryview[int], memoryview[int]]:
        """Return hashes and ends as numbers."""
        return memoryview(self.hashes).cast("Q"), memoryview(self.ends_bytes).cast("Q")

    @property
    def size_bytes(self) -> int:
        """Canonical bytes of the blocks."""
        return self.unpacked()[1][-1] - self.start_bytes if self.hashes else 0

    def keep(self, first: int, after: int) -> None:
        """Keep the blocks from `first` up to `after`."""
        if first:
            self.start_bytes = self.unpacked()[1][first - 1]
        kept = slice(first * 8, after * 8)
        self.hashes, self.ends_bytes = self.hashes[kept], self.ends_bytes[kept]


def released(lease: Lease, stamp: int, blocks: int, kind: int = 0) -> Release:
    """Return the record of a lease's first `blocks` blocks."""
    hashes, ends = lease.hashes, lease.ends_bytes
    if blocks < len(hashes):
        hashes, ends = hashes[:blocks], ends[:blocks]
    answer = lease.hashes[-1] ^ ANSWER_BITS
    return Release(stamp, answer, array("Q", hashes).tobytes(), array("Q", ends).tobytes(), 0, kind)


class Watch(Protocol):
    """Is told which prompt blocks become resident, and which are no more."""

    def came(self, blocks: Iterable[int]) -> None: ...

    def went(self, blocks: Iterable[int]) -> None: ...
