"""Counts of what passes between a router and Redis, as Prometheus will want them."""

from __future__ import annotations

from collections import defaultdict

from router.adapters.metrics.families import Histogram

SECONDS_BUCKETS = (0.000_1, 0.000_2, 0.000_3, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""From a Redis on the same machine to one that is given up."""


class Counts:
    """Plain numbers, since counting happens beside requests."""

    def __init__(self) -> None:
        self.commands = 0
        self.results: dict[str, int] = defaultdict(int)
        self.read_seconds = Histogram(SECONDS_BUCKETS)
        self.write_seconds = Histogram(SECONDS_BUCKETS)

    def sent(self, commands: int, seconds: float) -> None:
        """Count a batch that was answered."""
        self.commands += commands
        self.write_seconds.observe(seconds)

    def read(self, seconds: float) -> None:
        """Count a reading that was answered."""
        self.commands += 1
        self.read_seconds.observe(seconds)

    def result(self, result: str) -> None:
        """Count how a question ended: found, nothing, late or failed."""
        self.results[result] += 1
