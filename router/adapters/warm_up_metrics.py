"""Counts the requests that warm new replicas up, and shows them to Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import counter_family
from router.core.types import ReplicaId


class WarmUpCounts(Collector):
    """By replica and result, since the router's start."""

    def __init__(self) -> None:
        self.tokens: dict[ReplicaId, int] = defaultdict(int)
        self.requests: dict[tuple[ReplicaId, str], int] = defaultdict(int)

    def count(self, replica: ReplicaId, result: str, tokens: int) -> None:
        """Count a request and the prompt tokens that the engine was sent with it."""
        self.requests[replica, result] += 1
        self.tokens[replica] += tokens

    def forget(self, replica: ReplicaId) -> None:
        """Drop the label sets of a replica that left the fleet."""
        self.tokens.pop(replica, None)
        self.requests = defaultdict(int, {key: count for key, count in self.requests.items() if key[0] != replica})

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        yield counter_family(
            "warmroute_warm_up_tokens",
            "Prompt tokens sent to warm a replica up.",
            ("replica",),
            (((replica,), tokens) for replica, tokens in self.tokens.items()),
        )
        yield counter_family(
            "warmroute_warm_up_requests",
            "Requests sent to warm a replica up, by result.",
            ("replica", "result"),
            self.requests.items(),
        )
