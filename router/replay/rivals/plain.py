"""Policies that know nothing of caches: in turn, and fewest requests in flight.

Round robin is the default of most routers, nginx and the vLLM production stack
(https://docs.vllm.ai/projects/production-stack) among them; fewest requests in flight is nginx's `least_conn`
(https://nginx.org/en/docs/http/ngx_http_upstream_module.html#least_conn) and KubeAI's `LeastLoad`. Simplified: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.demand import Job
from router.replay.rivals.rival import Load, Pick


class RoundRobin:
    """Each replica in turn."""

    def __init__(self) -> None:
        self._next = -1

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the next one."""
        self._next = (self._next + 1) % len(loads)
        return Pick(self._next)


class Turns:
    """Breaks ties: the least recently chosen of those that are equal."""

    def __init__(self, replicas: int) -> None:
        self._chosen = [0] * replicas
        self._count = 0

    def best(self, costs: Sequence[float]) -> int:
        """Return the replica of the lowest cost."""
        best = min(range(len(costs)), key=lambda replica: (costs[replica], self._chosen[replica]))
        self._count += 1
        self._chosen[best] = self._count
        return best


class LeastRequests:
    """The replica with the fewest requests in flight."""

    def __init__(self, replicas: int) -> None:
        self._turns = Turns(replicas)

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the one with fewest."""
        return Pick(self._turns.best([load.requests for load in loads]))
