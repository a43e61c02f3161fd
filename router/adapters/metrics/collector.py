"""All that the router counts of requests and shows of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router import __version__
from router.adapters.metrics.accuracy import AccuracyCounts
from router.adapters.metrics.families import gauge_family
from router.adapters.metrics.fleet import FleetGauges
from router.adapters.metrics.requests import RequestCounts
from router.adapters.metrics.times import PhaseTimes
from router.adapters.metrics.turns import TurnCounts
from router.core.fleet import Fleet
from router.core.types import OutcomeKind, ReplicaId
from router.ports import RequestRecord


class RouterCollector(Collector):
    """The observer that counts, and the collector that shows. `clock` in monotonic seconds, as the fleet's."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._requests = RequestCounts(fleet)
        self.accuracy = AccuracyCounts(fleet)
        self._turns = TurnCounts()
        self._times = PhaseTimes()
        self._gauges = FleetGauges(fleet, clock)

    def request_finished(self, record: RequestRecord) -> None:
        """Count a finished request."""
        self._requests.request_finished(record)
        self._times.request_finished(record)
        self.accuracy.request_finished(record)
        if record.turn is not None:
            self._turns.count(record.turn)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Count a failed attempt."""
        self._requests.attempt_failed(replica, kind)

    def forget(self, replica: ReplicaId) -> None:
        """Drop the label sets of a replica that left the fleet."""
        self._requests.forget(replica)
        self.accuracy.forget(replica)

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts, and of the fleet as it is now."""
        for part in (self._requests, self.accuracy, self._turns, self._times, self._gauges):
            yield from part.collect()
        yield gauge_family("warmroute_build_info", "1, and which build it is.", ("version",), [((__version__,), 1)])
