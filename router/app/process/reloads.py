"""What has become of reloads, and whom to ask for one. `router.app.process.reload` does them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import uvicorn
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.app.process.gate import Gate
from router.app.recording import Origin
from router.app.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Report:
    """What a reload did. With an error, nothing was changed."""

    changed: tuple[str, ...] = ()
    """Settings that have another value now."""
    needs_restart: tuple[str, ...] = ()
    """Settings that were given another value, and keep the one that the router was started with."""
    error: str | None = None
    """Why the settings can't be used, in one line."""


@dataclass(frozen=True, slots=True)
class Order:
    """What workers are sent: the settings to take, or none where they can't be used, and what the parent found."""

    settings: Settings | None
    report: Report
    origin: Origin | None = None
    """Of what is recorded with these settings."""


class Reloads:
    """Counts reloads; belongs to a House. Whoever runs the router says how to `ask` for one."""

    def __init__(self) -> None:
        self.ask: Callable[[], Awaitable[Report]] = _nobody
        """Reload; for the admin API."""
        self.serving: uvicorn.Config | None = None
        """The client port's; None where nothing listens."""
        self.ok = 0
        self.failed = 0
        self.last_failed = False

    def note(self, report: Report) -> None:
        """Count a reload."""
        self.last_failed = report.error is not None
        if self.last_failed:
            self.failed += 1
        else:
            self.ok += 1


async def _nobody() -> Report:
    return Report(error="this router was started without a way to reload its settings")


class ReloadCollector(Collector):
    """Metrics of reloads and of the stop, for Prometheus."""

    def __init__(self, reloads: Reloads, gate: Gate) -> None:
        self._reloads = reloads
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """Return the present numbers."""
        reloads = self._reloads
        counter = CounterMetricFamily(
            "warmroute_reloads", "Reloads of the settings: ok, or failed, which changed nothing.", labels=["result"]
        )
        counter.add_metric(["ok"], reloads.ok)
        counter.add_metric(["failed"], reloads.failed)
        yield counter
        yield GaugeMetricFamily(
            "warmroute_config_reload_success", "1 unless the last reload failed.", 0.0 if reloads.last_failed else 1.0
        )
        yield GaugeMetricFamily(
            "warmroute_stopping", "1 from the moment the router was told to stop.", 0.0 if self._gate.open else 1.0
        )
