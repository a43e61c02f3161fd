"""The paged KV cache of one engine, kept as vLLM 0.32 keeps it (v1/core/block_pool.py, v1/core/kv_cache_utils.py)."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from xxhash import xxh3_64_intdigest

from router.sim.types import SimRequest

NULL_BLOCK = 0
"""vLLM takes the first block of the pool as a placeholder that holds no tokens: of N blocks, N - 1 are usable."""

_MASK_32 = (1 << 32) - 1
_MASK_64 = (1 << 64) - 1
_ID_BYTES = 4


class OutOfBlocks(Exception):
    """More blocks were asked for than are free. The pool is unchanged."""


def pack_ids(token_ids: Iterable[int]) -> array[int]:
    """Return token ids as unsigned 32-bit numbers; larger and negative ones keep their low 32 bits."""
    if isinstance(token_ids, array) and token_ids.typecode == "I":
        return token_ids
    listed = list(token_ids)
    try:
        return array("I", listed)
    except OverflowError:
        return array("I", [token & _MASK_32 for token in listed])


def chain_hashes(token_ids: Iterable[int], block_tokens: int, salt: int = 0) -> list[int]:
    """Return the 64-bit hash of every full block; each hash covers its block and, through its parent's, all before it.

    The parent's hash is the seed of xxh3-64; the first block's seed is `salt` (its low 64 bits).
    """
    packed = pack_ids(token_ids).tobytes()
    step = block_tokens * _ID_BYTES
    parent = salt & _MASK_64
    hashes = []
    for start in range(0, len(packed) - step + 1, step):
        parent = xxh3_64_intdigest(packed[start : start + step], parent)
        hashes.append(parent)
    return hashes


class CacheListener(Protocol):
    """Is told what becomes of cached blocks."""

    def stored(self, request: SimRequest, hashes: Sequence[int], first: int, after: int) -> None:
        """A request's blocks from number `first` up to `after` have got the content of these `hashes`."""

    def removed(self, block_hash: int) -> None:
        """A block has lost its content to an allocation."""

    def cleared(self) -> None:
        """All blocks have lost their content."""


class BlockPool:
    """Blocks by number: free ones in order of eviction, referenced ones, and which block holds which hash.

    A block that is freed keeps its hash, and can be hit, until an allocation takes it. Two blocks may hold one hash
    (vLLM does not merge them): the one cached first is the one that is hit.
    """

    __slots__ = ("_cached", "_free", "_hashes", "_references", "evicted_blocks", "listener", "num_blocks")

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 2:
            raise ValueError(f"a pool needs 2 blocks, one of them reserved; got {num_blocks}")
        self.num_blocks = num_blocks
        self.listener: CacheListener | None = None
        self.evicted_blocks = 0
        """How many cached blocks lost their content to an allocation, ever."""
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(NULL_BLOCK + 1, num_blocks))
        self._references = [0] * num_blocks
        self._hashes: list[int | None] = [None] * num_blocks
        self._cached: dict[int, int | dict[int, None]] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds, cached or not."""
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold, each counted once."""
        return self.num_blocks - 1 - len(self._free)

    @property
    def used_ratio(self) -> float:
        """Held blocks over usable ones, 0 to 1 (vLLM's kv_cache_usage_perc)."""
        return self.used_blocks / (self.num_blocks - 1)

    @property
    def cached_hashes(self) -> int:
        """How many different hashes can be hit."""
        return len(self._cached)

    def references(self, block: int) -> int:
        """How many requests hold `block`."""
        return self._references[block]

    def eviction_order(self) -> list[int]:
        """Free blocks, the next to be taken first."""
        return list(self._free)

    def longest_hit(self, hashes: Sequence[int], limit_blocks: int) -> list[int]:
        """Return the blocks that hold the leading hashes, without a gap and at most `limit_blocks`."""
        cached = self._cached
        hit: list[int] = []
        for index in range(min(limit_blocks, len(hashes))):
            found = cached.get(hashes[index])
            if found is None:
                break
            hit.append(found if isinstance(found, int) else next(iter(found)))
        return hit

    def idle_among(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` are free now and would leave the free queue when touched."""
        references = self._references
        return sum(not references[block] for block in blocks)

    def touch(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks once more; idle ones leave the free queue."""
        references, free = self._references, self._free
        for block in blocks:
            if not references[block]:
                del free[block]
            references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Take the `count` free blocks that are next in the order of eviction; only now do they lose their hash.

        Raises:
            OutOfBlocks: fewer than `count` are free.
        """
        free = self._free
        if count > len(free):
            raise OutOfBlocks(f"{count} blocks asked for, {len(free)} free")
        taken = [free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._references[block] = 1
            if self._hashes[block] is not None:
                self._forget(block)
        return taken

    def cache(self, block: int, block_hash: int) -> None:
        """Say that `block`, held and full, has the content `block_hash`."""
        self._hashes[block] = block_hash
        found = self._cached.setdefault(block_hash, block)
        if found == block:
            return
        if isinstance(found, int):
            self._cached[block_hash] = {found: None, block: None}
        else:
            found[block] = None

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of a request's blocks, given in the order of its tokens.

        The tail becomes evictable before the head. Blocks without a hash can serve nobody and go to the very front.
        """
        references, free = self._references, self._free
        unhashed = []
        for block in reversed(blocks):
            references[block] -= 1
            if references[block]:
                continue
            free[block] = None
            if self._hashes[block] is None:
                unhashed.append(block)
        for block in reversed(unhashed):
            free.move_to_end(block, last=False)

    def reset(self) -> bool:
        """Forget all content; False, and nothing changes, while any block is held."""
        if self.used_blocks:
            return False
        self._cached.clear()
        self._hashes = [None] * self.num_blocks
        if self.listener is not None:
            self.listener.cleared()
        return True

    def _forget(self, block: int) -> None:
        block_hash = self._hashes[block]
        assert block_hash is not None
        self._hashes[block] = None
        self.evicted_blocks += 1
        if self.listener is not None:
            self.listener.removed(block_hash)
        found = self._cached[block_hash]
        if isinstance(found, int):
            del self._cached[block_hash]
            return
        del found[block]
        if len(found) == 1:
            self._cached[block_hash] = next(iter(found))
