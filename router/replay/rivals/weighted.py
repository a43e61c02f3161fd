"""A weighted sum of scores: the llm-d family (Gateway API Inference Extension).

Documented at https://llm-d.ai/docs/architecture (router, scheduling) and in the extension's prefix-cache plugin: score
= prefix weight x matched share of the prompt + queue weight x (max - queue) / (max - min) + KV weight x (1 - KV usage);
the highest wins, ties at random. Weights of 2, 1, 1 and more for the prefix are in its guides.

In its favour: the queue is what the router itself knows to have no first token yet, without a scraping delay; the
whole prompt is matched, not its first 256 blocks; the index has the engine's own size, as with `autoTune`. Simplified:
KV usage is read each second, not each 50 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from router.replay.demand import Job
from router.replay.rivals.index import PrefixIndex
from router.replay.rivals.rival import Load, Pick


class Weights(NamedTuple):
    """Of the three scores."""

    prefix: float
    queue: float
    kv: float


class Weighted:
    """The highest weighted sum."""

    def __init__(self, index: PrefixIndex, weights: Weights, seed: int) -> None:
        self._index, self._weights, self._chance = index, weights, Random(seed)

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the highest; of equal ones any."""
        matched = self._index.matched_tokens(job)
        scores = self._scores(job, matched, loads)
        highest = max(scores)
        best = self._chance.choice([replica for replica, score in enumerate(scores) if score == highest])
        self._index.sent(job, best)
        return Pick(best, matched[best])

    def _scores(self, job: Job, matched: Sequence[int], loads: Sequence[Load]) -> list[float]:
        weights, pending = self._weights, [load.pending for load in loads]
        most, spread = max(pending), max(pending) - min(pending)
        return [
            weights.prefix * tokens / job.prompt_tokens
            + weights.queue * ((most - load.pending) / spread if spread else 1.0)
            + weights.kv * (1.0 - (load.report.kv_usage_ratio or 0.0))
            for tokens, load in zip(matched, loads, strict=True)
        ]
