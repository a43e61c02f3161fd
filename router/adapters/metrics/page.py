"""The text that Prometheus reads, made a little at a time: streams go on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

SLICE_SAMPLES = 100
"""Lines written in one go: half a millisecond of work. The whole page of 64 replicas and 3 models is 75. Small families
go together: where each let streams go first, a page of a router that is full took longer than Prometheus waits."""

FAMILY_SAMPLES = 10
"""What a family costs beside its lines, in lines."""


async def text_of(registry: CollectorRegistry) -> bytes:
    """Return all metrics of a registry in Prometheus' text format. Each family is of one moment, not the whole page."""
    parts, samples = [], 0
    for family in registry.collect():
        for part in _slices(family):
            parts.append(part)
            samples += min(len(family.samples), SLICE_SAMPLES) + FAMILY_SAMPLES
            if samples >= SLICE_SAMPLES:
                samples = 0
                await asyncio.sleep(0)
    return b"".join(parts)


def _slices(family: Metric) -> Iterator[bytes]:
    yield _text(family, family.samples[:SLICE_SAMPLES])
    for start in range(SLICE_SAMPLES, len(family.samples), SLICE_SAMPLES):
        text = _text(family, family.samples[start : start + SLICE_SAMPLES])
        yield text.split(b"\n", 2)[2]  # the family's head, help and type, stands before its first slice


def _text(family: Metric, samples: list[Sample]) -> bytes:
    part = Metric(family.name, family.documentation, family.type)
    part.samples = samples
    return generate_latest(_One(part))


class _One(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
