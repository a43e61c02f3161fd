"""Work still to be done: Dynamo's sum of prefill and decode blocks, and the product of tokens and batch.

Sum: https://docs.nvidia.com/dynamo/design-docs/router-design: overlap weight x prefill blocks + decode blocks, lowest
wins, with a weight of 1 by default; prefill blocks are what the replica has still to compute, this prompt included,
decode blocks what all its requests hold. Product: tokens to be computed, this prompt included, x requests in flight,
this one included; no weight to tune.

Simplified: the index is of the engine's size and of what was sent, where Dynamo's is built from KV events or forgets
after 120 s; decode blocks are those of prompts, as lengths of answers are not known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.demand import Job
from router.replay.rivals.index import PrefixIndex
from router.replay.rivals.plain import Turns
from router.replay.rivals.rival import Load, Pick

OVERLAP_WEIGHT = 1.0
"""Dynamo's default."""


class WorkSum:
    """Prefill blocks + decode blocks; blocks are tokens divided by the same number, so tokens are compared."""

    def __init__(self, replicas: int, index: PrefixIndex) -> None:
        self._index, self._turns = index, Turns(replicas)

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the lowest sum."""
        matched = self._index.matched_tokens(job)
        costs = [
            OVERLAP_WEIGHT * (load.pending_tokens + job.prompt_tokens - tokens) + load.context_tokens
            for tokens, load in zip(matched, loads, strict=True)
        ]
        best = self._turns.best(costs)
        self._index.sent(job, best)
        return Pick(best, matched[best])


class WorkProduct:
    """Tokens x batch."""

    def __init__(self, replicas: int, index: PrefixIndex) -> None:
        self._index, self._turns = index, Turns(replicas)

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the lowest product."""
        matched = self._index.matched_tokens(job)
        costs = [
            float((load.pending_tokens + job.prompt_tokens - tokens) * (load.requests + 1))
            for tokens, load in zip(matched, loads, strict=True)
        ]
        best = self._turns.best(costs)
        self._index.sent(job, best)
        return Pick(best, matched[best])
