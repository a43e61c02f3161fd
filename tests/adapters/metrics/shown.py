"""The router's collector, and the page that Prometheus reads."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from router.adapters.metrics.collector import RouterCollector
from router.core.fleet import Fleet


class Shown:
    """A fleet of one replica, its collector, and the page."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.fleet.add("r-1")
        self.collector = RouterCollector(self.fleet, lambda: 100.0)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        page = generate_latest(self.registry).decode()
        families = text_string_to_metric_families(page)
        return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]

    def values(self, name: str, label: str) -> dict[str, float]:
        """The samples of a name that have no other label, by that label's value."""
        return {own[label]: value for known, own, value in self.samples() if known == name and set(own) == {label}}

    def value(self, name: str, **labels: str) -> float | None:
        found = [value for known, own, value in self.samples() if known == name and labels.items() <= own.items()]
        assert len(found) < 2, found
        return found[0] if found else None
