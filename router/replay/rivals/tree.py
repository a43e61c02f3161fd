"""A prefix tree, and a switch to the shortest queue for the whole fleet: the SGLang family's `cache_aware`.

Documented for smg (https://github.com/lightseekorg/smg/blob/main/docs/concepts/routing/cache-aware.md); the SGLang
router and the vLLM router, a fork of it, have the same. While the fleet is balanced a request goes to the replica of
its longest match, if that is more than a share of the prompt, else to the least loaded one. The fleet counts as
unbalanced when max - min of requests exceeds an absolute threshold and max exceeds min by a relative one; then all go
to the least loaded.

Simplified: blocks for characters, eviction at once and not each 120 s; of several replicas with the same match the
least loaded is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from router.replay.demand import Job
from router.replay.rivals.index import PrefixIndex
from router.replay.rivals.plain import Turns
from router.replay.rivals.rival import Load, Pick

TREE_TOKENS = (1 << 26) // 4
"""Of each replica in the tree: `max_tree_size` is 2^26 characters by default, at some four to a token."""


class Switch(NamedTuple):
    """Thresholds."""

    cache_ratio: float
    """Of the prompt: a match of more decides."""
    absolute_requests: int
    relative_ratio: float

    def thrown(self, loads: Sequence[Load]) -> bool:
        """Tell whether the fleet counts as unbalanced."""
        least, most = min(load.requests for load in loads), max(load.requests for load in loads)
        return most - least > self.absolute_requests and most > least * self.relative_ratio


GATEWAY = Switch(0.3, 64, 1.5)
"""The defaults of smg and of the routers' binaries."""

LAUNCHER = Switch(0.5, 32, 1.0001)
"""The defaults of the SGLang router's older Python interface and of those who took them from there."""


class TreeSwitch:
    """Longest match, unless the fleet is unbalanced."""

    def __init__(self, replicas: int, block_tokens: int, switch: Switch = GATEWAY) -> None:
        self._index, self._turns = PrefixIndex(replicas, block_tokens, TREE_TOKENS), Turns(replicas)
        self._switch = switch

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the longest match, or the shortest queue."""
        matched = self._index.matched_tokens(job)
        longest = max(matched)
        by_match = longest > self._switch.cache_ratio * job.prompt_tokens and not self._switch.thrown(loads)
        costs = [
            float("inf") if by_match and tokens < longest else load.requests
            for tokens, load in zip(matched, loads, strict=True)
        ]
        best = self._turns.best(costs)
        self._index.sent(job, best)
        return Pick(best, matched[best])
