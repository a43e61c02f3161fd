"""Warm until saturated: stay with the best match unless its queue is too long.

What `sticky_least_loaded` of the vLLM router (https://github.com/vllm-project/router) and session affinity with a
saturation detector in llm-d (https://llm-d.ai/docs/architecture) come to, with the threshold in seconds. In its favour:
it knows the engines' nominal prefill speed, and counts uncached tokens where products count requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.demand import Job
from router.replay.rivals.index import PrefixIndex
from router.replay.rivals.plain import Turns
from router.replay.rivals.rival import Load, Pick

SATURATED_S = 2.0
"""Predicted wait from which a session leaves: what a reader of a chat notices."""


class Sticky:
    """The longest match, or the shortest queue."""

    def __init__(self, replicas: int, index: PrefixIndex, prefill_tokens_per_s: float) -> None:
        self._index, self._turns, self._tokens_per_s = index, Turns(replicas), prefill_tokens_per_s

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the longest match that is not saturated, else whoever has least to do."""
        matched = self._index.matched_tokens(job)
        queues_s = [load.pending_tokens / self._tokens_per_s for load in loads]
        longest = max(matched)
        warm = [longest > 0 and tokens == longest and queues_s[n] <= SATURATED_S for n, tokens in enumerate(matched)]
        costs = [s if not any(warm) or warm[n] else float("inf") for n, s in enumerate(queues_s)]
        best = self._turns.best(costs)
        self._index.sent(job, best)
        return Pick(best, matched[best])
