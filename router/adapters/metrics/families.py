"""From plain counts to Prometheus' objects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.samples import Sample

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)


class Histogram:
    """Counts per bucket."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return (upper bound, count up to it) for each bucket, and the sum, as Prometheus wants them."""
        total, buckets = 0, []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets, self._sum

    def __bool__(self) -> bool:
        """Tell whether anything was counted."""
        return any(self._counts)


def counter_family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> CounterMetricFamily:
    """Make a counter of rows of label values and number."""
    return _filled(CounterMetricFamily(name, text, labels=labels), rows)


def gauge_family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float | None]]
) -> GaugeMetricFamily:
    """Make a gauge of rows of label values and number; a row of None is unknown, and so it is absent."""
    known = ((values, value) for values, value in rows if value is not None)
    return _filled(GaugeMetricFamily(name, text, labels=labels), known)


def _filled(family: F, rows: Iterable[tuple[Sequence[str], float]]) -> F:
    for values, value in rows:
        family.add_metric(values, value)
    return family


def histogram_family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], Histogram]]
) -> HistogramMetricFamily:
    """Make a histogram of rows of label values and counts."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in rows:
        own = dict(zip(labels, values, strict=True))
        buckets, total = histogram.cumulative()
        family.samples += [Sample(f"{name}_bucket", own | {"le": bound}, count) for bound, count in buckets]
        family.samples += (Sample(f"{name}_count", own, buckets[-1][1]), Sample(f"{name}_sum", own, total))
    return family
