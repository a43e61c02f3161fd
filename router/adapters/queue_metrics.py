"""Shows the queue to Prometheus: who waits now, and how long those waited that have gone."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import Histogram, gauge_family, histogram_family
from router.core.queue import Queue
from router.core.types import OutcomeKind, ReplicaId
from router.core.waiting import Priority
from router.ports import RequestRecord

WAIT_BUCKETS_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0)
"""From one look at the queue to what nobody waits for."""


class QueueCollector(Collector):
    """The observer that counts waits, and the collector that shows."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waits = {priority: Histogram(WAIT_BUCKETS_S) for priority in Priority}

    def request_finished(self, record: RequestRecord) -> None:
        """Count a request that had to wait."""
        if record.queued_s:
            self._waits[Priority.BATCH if record.batch else Priority.INTERACTIVE].observe(record.queued_s)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Nothing to count."""

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the queue as it is now."""
        counts = (((priority.name.lower(),), self._queue.count(priority)) for priority in Priority)
        yield gauge_family("warmroute_queued_requests", "Requests that wait in the router.", ("priority",), counts)
        yield GaugeMetricFamily("warmroute_queued_bytes", "Bodies of the requests that wait.", self._queue.bytes)
        yield histogram_family(
            "warmroute_queue_wait_seconds",
            "How long requests waited in the router that had to, whatever became of them.",
            ("priority",),
            [((priority.name.lower(),), waits) for priority, waits in self._waits.items()],
        )
