"""Which replica was sent which prompts: an approximate index of caches, one LRU list for each replica."""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.demand import Job
from router.replay.prefixes import PrefixCache


class PrefixIndex:
    """Prompts in the engines' blocks. Answers, and what engines evict by themselves, are unknown to it."""

    def __init__(self, replicas: int, block_tokens: int, capacity_tokens: int) -> None:
        """`capacity_tokens`: of each replica."""
        self._block_tokens = block_tokens
        self._caches = [PrefixCache(max(1, capacity_tokens // block_tokens)) for _ in range(replicas)]

    def matched_tokens(self, job: Job) -> list[int]:
        """Return the leading tokens that each replica was sent before; never the last one, which is computed anyway."""
        blocks = self._blocks_of(job)
        most_tokens = (job.prompt_tokens - 1) // self._block_tokens * self._block_tokens
        return [min(most_tokens, cache.match(blocks) * self._block_tokens) for cache in self._caches]

    def sent(self, job: Job, replica: int) -> None:
        """Note where a prompt goes."""
        self._caches[replica].use(self._blocks_of(job))

    def _blocks_of(self, job: Job) -> Sequence[int]:
        return (job.simulated.block_hashes or ())[: job.prompt_tokens // self._block_tokens]
