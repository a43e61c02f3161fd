"""Counts touches, and shows Prometheus whether they pay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import counter_family
from router.core.touching.profit import Profit
from router.core.types import ReplicaId


class TouchCounts(Collector):
    """By replica and result since the router's start, and the account of all."""

    def __init__(self, profit: Profit, kept_bytes: Callable[[], int], clock: Callable[[], float]) -> None:
        self.touches: dict[tuple[ReplicaId, str], int] = defaultdict(int)
        self._profit, self._kept_bytes, self._clock = profit, kept_bytes, clock

    def count(self, replica: ReplicaId, result: str) -> None:
        """Count a touch: done, refused with a 4xx, interrupted by a client's request, or failed."""
        self.touches[replica, result] += 1

    def forget(self, replica: ReplicaId) -> None:
        """Drop the label sets of a replica that left the fleet."""
        self.touches = defaultdict(int, {key: count for key, count in self.touches.items() if key[0] != replica})

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        profit = self._profit
        labels = ("replica", "result")
        yield counter_family("warmroute_touches", "One-token requests to idle sessions.", labels, self.touches.items())
        seconds = {("saved",): profit.saved_s, ("lost",): profit.lost_s, ("spent",): profit.spent_s}
        yield counter_family(
            "warmroute_touch_seconds", "Prefill saved, lost and spent by touches.", ("kind",), seconds.items()
        )
        requests = {("hit",): profit.hits, ("miss",): profit.misses}
        yield counter_family(
            "warmroute_touch_changed_requests",
            "Requests that touches made hits or misses of.",
            ("outcome",),
            requests.items(),
        )
        resting = 1.0 if profit.resting(self._clock()) else 0.0
        yield GaugeMetricFamily("warmroute_touch_resting", "Whether touches are off, after a loss.", value=resting)
        held = self._kept_bytes()
        yield GaugeMetricFamily("warmroute_touch_kept_bytes", "Memory of bodies kept for touches.", value=held)
