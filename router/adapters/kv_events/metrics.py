"""Shows to Prometheus how well the engines' events are followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.adapters.kv_events.follower import Follower
from router.adapters.metrics.families import counter_family, gauge_family
from router.core.types import ReplicaId

_COUNTERS = (
    ("batches", "Batches of KV cache events."),
    ("gaps", "Times that batches of KV cache events were missing."),
    ("replays", "Times that an engine sent its KV cache events again."),
    ("restarts", "Times that an engine began to count its KV cache events anew."),
    ("forgotten", "Times that KV cache events were lost, and what was known by them with them."),
    ("garbage", "Batches of KV cache events that could not be read."),
)
"""Field of the counts, text."""


class KvEventsCollector(Collector):
    """The followers as they are when they are looked at."""

    def __init__(self, followers: Mapping[ReplicaId, Follower]) -> None:
        self._followers = followers

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        followers = list(self._followers.items())
        for name, text, values in (
            ("live", "1 while a replica is known by its KV cache events.", [int(f.live) for _, f in followers]),
            ("blocks", "The engine's blocks that are known by its events.", [len(f.cache) for _, f in followers]),
        ):
            rows = (((replica,), value) for (replica, _), value in zip(followers, values, strict=True))
            yield gauge_family(f"warmroute_kv_events_{name}", text, ("replica",), rows)
        for field, text in _COUNTERS:
            counts = (((replica,), getattr(follower.counts, field)) for replica, follower in followers)
            yield counter_family(f"warmroute_kv_events_{field}", text, ("replica",), counts)
