"""Copies of KV blocks beside the GPU: in the host's memory, or in a store that several engines have together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offload:
    """A tier as it is ordered."""

    tokens: int
    """What it holds."""
    load_tokens_per_s: float
    """From there to a GPU: bytes/s over the KV cache's bytes per token."""
    shared: bool = False
    """One for the fleet; else each engine has one of its own."""


class Tier:
    """Block hashes, the least recently used out first.

    As vLLM 0.32's native offload (`--kv-offloading-size`) does, blocks are copied when they are filled and not when the
    GPU evicts them. So what the GPU holds is here, too, and a tier as small as the GPU's cache adds next to nothing.
    Writing takes no time: it goes on beside the computing.
    """

    __slots__ = ("_held", "capacity_blocks", "load_tokens_per_s", "shared")

    def __init__(self, capacity_blocks: int, load_tokens_per_s: float, shared: bool = False) -> None:
        self.capacity_blocks = capacity_blocks
        self.load_tokens_per_s = load_tokens_per_s
        self.shared = shared
        self._held: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def found(self, hashes: Sequence[int], first: int, limit_blocks: int) -> int:
        """Return how many blocks follow the `first` ones without a gap, up to block `limit_blocks`."""
        held, at = self._held, first
        end = min(limit_blocks, len(hashes))
        while at < end and hashes[at] in held:
            at += 1
        return at - first

    def hold(self, hashes: Iterable[int]) -> None:
        """Copy blocks, or use those that are here: given in the order of the prompt, the first one goes last."""
        held = self._held
        for block_hash in reversed(list(hashes)):
            held[block_hash] = None
            held.move_to_end(block_hash)
        while len(held) > self.capacity_blocks:
            held.popitem(last=False)
