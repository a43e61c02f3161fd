"""What the router's own limits leave, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.proxy.plane import Plane


class LimitsCollector(Collector):
    """Shows what one process has of memory and files in use, and whether the disk takes its state."""

    def __init__(self, plane: Plane, state_kept: Callable[[], bool]) -> None:
        self._plane = plane
        self._state_kept = state_kept

    def collect(self) -> Iterator[Metric]:
        """Return the present numbers."""
        bodies, shortage = self._plane.bodies, self._plane.shortage
        yield GaugeMetricFamily("warmroute_bodies_bytes", "Request bodies in memory.", bodies.held_bytes)
        yield GaugeMetricFamily(
            "warmroute_state_kept", "0 while the state file can't be written.", 1.0 if self._state_kept() else 0.0
        )
        yield CounterMetricFamily(
            "warmroute_shortages", "Connections not made for lack of files, local ports or memory.", shortage.count
        )
