"""How many tasks the router's event loop has, for Prometheus: a number that grows without end is a leak."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class TasksCollector(Collector):
    """Counts them when it is asked."""

    def __init__(self, tasks: Callable[[], Sized]) -> None:
        """`tasks` returns those that have not ended: asyncio.all_tasks, called within the loop."""
        self._tasks = tasks

    def collect(self) -> Iterator[Metric]:
        """Return the present number."""
        yield GaugeMetricFamily("warmroute_tasks", "Tasks of the router's event loop.", len(self._tasks()))
