"""How often the router knew what an engine had cached: its prediction against the engine's report, answer by answer."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import counter_family
from router.core.fleet import Fleet
from router.core.types import ReplicaId
from router.ports import RequestRecord


class Counted:
    """The predictions of one replica."""

    __slots__ = ("exact", "near", "reported")

    def __init__(self) -> None:
        self.reported = 0
        """Answers in which the engine said what was cached."""
        self.exact = 0
        """Of these, those whose prediction was the same number."""
        self.near = 0
        """Those whose prediction was no more than one block of the engine off."""


class AccuracyCounts(Collector):
    """By replica, since the router's start or the replica's coming."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._counts: dict[ReplicaId, Counted] = {}

    def request_finished(self, record: RequestRecord) -> None:
        """Count a finished request whose answer says what was cached."""
        decision, cached = record.decision, record.usage.cached_tokens
        replica = None if decision is None else self._fleet.get(decision.replica)
        if decision is None or replica is None or cached is None or record.status >= 400:
            return
        counted = self._counts.setdefault(replica.replica_id, Counted())
        off = abs(decision.matched_tokens - cached)
        counted.reported += 1
        counted.exact += off == 0
        counted.near += off <= replica.block_tokens

    def forget(self, replica: ReplicaId) -> None:
        """Drop the label sets of a replica that left the fleet."""
        self._counts.pop(replica, None)

    def describe(self, replica: ReplicaId) -> dict[str, float | int | None]:
        """Return the shares, null where nothing was reported."""
        counted = self._counts.get(replica, Counted())
        reported = counted.reported
        return {
            "reported_requests": reported,
            "exact_ratio": round(counted.exact / reported, 4) if reported else None,
            "within_a_block_ratio": round(counted.near / reported, 4) if reported else None,
        }

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        for name, text, field in (
            ("reported_predictions", "Answers in which the engine said what was cached.", "reported"),
            ("exact_predictions", "Of these, those whose prediction was the same number of tokens.", "exact"),
            ("near_predictions", "Of these, those whose prediction was within one block of the engine.", "near"),
        ):
            rows = (((replica,), getattr(counted, field)) for replica, counted in self._counts.items())
            yield counter_family(f"warmroute_{name}", text, ("replica",), rows)
