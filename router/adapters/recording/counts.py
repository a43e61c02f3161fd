"""Counts recorded requests, and shows them to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class RecordingCounts(Collector):
    """Since the router's start."""

    def __init__(self) -> None:
        self.running = False
        """Whether requests are to be recorded."""
        self.trouble: str | None = None
        """Why the file can't be written at the moment."""
        self.written = 0
        self.dropped = 0

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        requests = CounterMetricFamily(
            "warmroute_recorded_requests",
            "Finished requests that a recording took: written, or dropped where the file could not be written.",
            labels=["result"],
        )
        requests.add_metric(["written"], self.written)
        requests.add_metric(["dropped"], self.dropped)
        yield requests
        yield GaugeMetricFamily(
            "warmroute_recording",
            "1 while requests are recorded and the file can be written.",
            float(self.running and self.trouble is None),
        )
