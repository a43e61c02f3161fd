"""What one engine says it holds, block by block, under the names that our own prompts have."""

from __future__ import annotations

from itertools import takewhile

import xxhash

from router.core.engine_cache.turns import Turns
from router.core.engine_cache.types import NOTHING, Block, Held, Medium, Stored
from router.core.token_ids import TokenIds, chained

BLOCK_BYTES = 420
"""Memory of one block in the worst moment, just after its tables grew: its record, two hashes, a slot in two tables
(64-bit CPython 3.11 to 3.14; tests/core/engine_cache/test_cache.py holds it against tracemalloc)."""

MAX_BLOCKS = 1 << 18
"""Blocks of one engine that are known at the most: 4 million tokens at 16 a block, in 110 MB. What came first is
forgotten first; then less is predicted than there is."""

ASIDE_SHARE = 16
"""Of the blocks, one in so many may wait for its parent to be known."""


class EngineCache:
    """The blocks of one engine, as its events tell of them. Unknown hashes and repeated news do no harm."""

    __slots__ = ("_aside", "_aside_blocks", "_by_engine", "_by_name", "_far_blocks", "block_tokens", "dropped_blocks",
                 "gpu_blocks", "limit_blocks", "turns")  # fmt: skip

    def __init__(self, limit_blocks: int = MAX_BLOCKS) -> None:
        self.limit_blocks = limit_blocks
        self.block_tokens = 0
        """Tokens of a block; 0 until the first one is stored."""
        self.dropped_blocks = 0
        """Blocks that were forgotten for lack of room, ever."""
        self.turns = Turns()
        self._empty()

    def _empty(self) -> None:
        self._by_engine: dict[int, Block] = {}
        self._by_name: dict[int, Block] = {}
        self._aside: dict[int, list[Stored]] = {}
        """Stored blocks whose parent is unknown, by the parent's hash."""
        self._aside_blocks = 0
        self._far_blocks = 0
        """How many are not in the GPU's cache."""
        self.gpu_blocks = 0
        """Blocks of the GPU's cache that hold something; two with the same content count as two."""

    def __len__(self) -> int:
        return len(self._by_engine)

    # Events

    def stored(self, event: Stored, medium: Medium = Medium.GPU) -> None:
        """Take in that blocks were stored."""
        if not self._fits(event):
            return
        for engine_hash in event.hashes:
            self._add_copy(self._block(engine_hash), medium)
        if event.token_ids:
            self._name_with_children(event)
        while len(self._by_engine) > self.limit_blocks:
            self._drop(next(iter(self._by_engine)))

    def _fits(self, event: Stored) -> bool:
        """Tell whether the event is of whole blocks of the size that prompts are looked up in."""
        if not event.token_ids:
            return True
        if event.block_tokens < 1 or len(event.token_ids) != len(event.hashes) * event.block_tokens:
            return False
        self.block_tokens = self.block_tokens or event.block_tokens
        return event.block_tokens == self.block_tokens

    def _block(self, engine_hash: int) -> Block:
        block = self._by_engine.get(engine_hash)
        if block is None:
            block = self._by_engine[engine_hash] = Block(engine_hash)
            self._far_blocks += 1
        return block

    def _add_copy(self, block: Block, medium: Medium) -> None:
        if medium is Medium.GPU:
            self._far_blocks -= not block.gpu
            block.gpu += 1
            self.gpu_blocks += 1
        elif medium is Medium.CPU:
            block.cpu = True
        else:
            block.disk = True

    def _name_with_children(self, event: Stored) -> None:
        """Name an event's blocks, and all that have waited for them. A loop: thousands may follow each other."""
        events = [event]
        while events:
            named = events.pop()
            if self._name(named) and self._aside:
                for engine_hash in named.hashes:
                    children = self._aside.pop(engine_hash, [])
                    self._aside_blocks -= sum(len(child.hashes) for child in children)
                    events += children

    def _name(self, event: Stored) -> bool:
        """Name blocks by their tokens; keep the event aside, and return False, while their parent has no name."""
        parent = None if event.parent is None else self._by_engine.get(event.parent)
        if event.parent is not None and (parent is None or parent.name is None):
            self._put_aside(event.parent, event)
            return False
        seed, position = (event.scope, 0) if parent is None else (parent.name, parent.blocks)
        for engine_hash, name in zip(event.hashes, _names(event, seed or 0), strict=True):
            position += 1
            block = self._by_engine.get(engine_hash)
            if block is None:
                continue  # removed while its event was kept aside
            if block.name is None:
                block.name, block.parent, block.blocks = name, parent, position
                self._by_name[name] = block
            parent = block
        if parent is not None:
            self.turns.extend(event.label, parent)
        return True

    def _put_aside(self, parent: int, event: Stored) -> None:
        self._aside.setdefault(parent, []).append(event)
        self._aside_blocks += len(event.hashes)
        while self._aside_blocks > max(1, self.limit_blocks // ASIDE_SHARE):
            oldest = self._aside.pop(next(iter(self._aside)))
            self._aside_blocks -= sum(len(dropped.hashes) for dropped in oldest)

    def removed(self, hashes: list[int], medium: Medium = Medium.GPU) -> None:
        """Take in that one copy of each block has left a medium; a block without a copy is forgotten."""
        for engine_hash in hashes:
            block = self._by_engine.get(engine_hash)
            if block is None:
                continue
            self._take_copy(block, medium)
            if block.gone:
                self._drop(engine_hash, evicted=True)

    def _take_copy(self, block: Block, medium: Medium) -> None:
        if medium is Medium.CPU:
            block.cpu = False
        elif medium is Medium.DISK:
            block.disk = False
        elif block.gpu:
            block.gpu -= 1
            self.gpu_blocks -= 1
            self._far_blocks += not block.gpu

    def _drop(self, engine_hash: int, evicted: bool = False) -> None:
        """Forget a block. Evicted: what is left of its turn ends with its parent."""
        block = self._by_engine.pop(engine_hash)
        self._far_blocks -= not block.gpu
        self.gpu_blocks -= block.gpu
        if not evicted:
            self.dropped_blocks += 1
        if block.name is not None and self._by_name.get(block.name) is block:
            del self._by_name[block.name]
        self.turns.lost(block)
        block.parent = None  # a turn that remembers the block must not keep all before it in memory

    def cleared(self) -> None:
        """Take in that the engine emptied its GPU cache: other media keep what they have."""
        for engine_hash, block in list(self._by_engine.items()):
            self.gpu_blocks -= block.gpu
            self._far_blocks += block.gpu > 0
            block.gpu = 0
            if block.gone:
                self._drop(engine_hash, evicted=True)

    def forget(self) -> None:
        """Know nothing any more: the engine is another, or its news were lost."""
        self._empty()
        self.turns.forget()

    # Questions

    def held(self, tokens: TokenIds) -> Held:
        """Return what is held of a prompt: leading blocks in the GPU's cache, then those that can be loaded there.

        Never the prompt's last token: the engine computes it again to have something to sample. Blocks of the GPU's
        cache behind a gap count only where another medium has them too, as the engine looks for them there (vLLM:
        `get_num_new_matched_tokens` begins where the local hit ends).
        """
        size = self.block_tokens
        if not size or not self._by_name:
            return NOTHING
        hashes = tokens.hashes(size)[: max(0, len(tokens) - 1) // size]
        if not self._far_blocks:
            return Held(len(list(takewhile(self._by_name.__contains__, hashes))) * size)
        return self._held_by_medium(hashes)

    def _held_by_medium(self, hashes: list[int]) -> Held:
        gpu = cpu = disk = 0
        for name in hashes:
            block = self._by_name.get(name)
            if block is None:
                break
            if block.gpu and not cpu and not disk:
                gpu += 1
            elif block.cpu:
                cpu += 1
            elif block.disk:
                disk += 1
            else:
                break
        return Held(gpu * self.block_tokens, cpu * self.block_tokens, disk * self.block_tokens)

    def left_of_turn(self, key: int, turn_tokens: int | None) -> Held | None:
        """Return what is left of the blocks of a turn that had `turn_tokens` tokens, prompt and answer; None: any.

        `key`: see `turns.turn_key`. None where the turn is unknown, or the engine's blocks do not add up to it.
        The engine evicts a prompt's blocks from its end, so where the last one is, all are.
        """
        if not self.block_tokens:
            return None
        # The last token was never computed, so it fills no block.
        blocks = None if turn_tokens is None else (turn_tokens - 1) // self.block_tokens
        end = self.turns.left(key, blocks)
        if end is None:
            return None
        leaf = None if end.block is None else self._by_engine.get(end.block)
        if leaf is None:
            return NOTHING
        near, cpu, disk = leaf.blocks, 0, 0
        block: Block | None = leaf
        while block is not None and not block.gpu:
            if block.gone:  # behind a gap nothing counts
                near, cpu, disk = block.blocks - 1, 0, 0
                break
            near, cpu, disk = near - 1, cpu + block.cpu, disk + (not block.cpu)
            block = block.parent
        return Held(near * self.block_tokens, cpu * self.block_tokens, disk * self.block_tokens)


def _names(event: Stored, seed: int) -> list[int]:
    """Return our names of an event's blocks behind the one of name, or the scope, `seed`."""
    if event.foreign is None:
        return chained(seed, event.token_ids, event.block_tokens)
    names: list[int] = []
    for index, foreign in enumerate(event.foreign):
        start = index * event.block_tokens
        if foreign:
            seed = xxhash.xxh3_64_intdigest(foreign.to_bytes(8, "little"), seed)
        seed = chained(seed, event.token_ids[start : start + event.block_tokens], event.block_tokens)[0]
        names.append(seed)
    return names
