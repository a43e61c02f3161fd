"""Shows the replicas as the router's books have them, and what their engines say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import gauge_family
from router.core.fleet import Fleet
from router.core.health import State

ENGINE_GAUGES = (
    ("running", "running_requests", "Requests running, as the engine says."),
    ("waiting", "waiting_requests", "Requests waiting, as the engine says."),
    ("kv_usage_ratio", "kv_usage_ratio", "KV blocks held by live requests / all, as the engine says."),
    ("kv_tokens", "kv_capacity_tokens", "Capacity of the engine's KV cache."),
    ("prefix_queries_tokens", "prefix_queries_tokens", "The engine's prefix cache queries since its start."),
    ("prefix_hits_tokens", "prefix_hits_tokens", "The engine's prefix cache hits since its start."),
    ("external_queries_tokens", "external_queries_tokens", "Tokens looked for outside of the engine's own cache."),
    ("external_hits_tokens", "external_hits_tokens", "Of these, those that were found."),
    ("preemptions", "preemptions", "The engine's preemptions since its start."),
)
"""Field of a report, name, text."""


class FleetGauges(Collector):
    """The fleet as it is when it is looked at. `clock` in monotonic seconds, as the fleet's."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the fleet as it is now."""
        yield from self._books()
        yield self._states()
        yield from self._engines()
        yield GaugeMetricFamily("warmroute_index_bytes", "Memory of the index of prompts and sessions.",
                                self._fleet.index.size_bytes)  # fmt: skip

    def _books(self) -> Iterator[Metric]:
        now = self._clock()
        fleet = list(self._fleet)
        mirrors = [replica.mirror for replica in fleet]
        for name, text, values in (
            ("inflight_requests", "Requests in flight.", [r.ledger.streams for r in fleet]),
            ("ledger_tokens", "Uncached tokens sent, not yet prefilled.", [r.ledger.uncached_tokens for r in fleet]),
            ("replica_up", "1 while a replica takes requests.", [int(r.health.up) for r in fleet]),
            ("replica_pressure_ratio", "Saturation, 0 idle to 1 full.", [r.pressure_ratio(now) for r in fleet]),
            ("prefill_tokens_per_second", "Learnt prefill rate.", [r.prefill.tokens_per_s for r in fleet]),
            ("mirror_blocks", "Prompt blocks the replica is believed to hold.", [len(m) for m in mirrors]),
            ("mirror_fill_ratio", "What it is believed to hold / its capacity.", [m.fill_ratio for m in mirrors]),
            ("eviction_age_seconds", "For how long what is evicted next was not used.",
             [m.eviction_age_s(now) for m in mirrors]),
        ):  # fmt: skip
            rows = (((replica.replica_id,), value) for replica, value in zip(fleet, values, strict=True))
            yield gauge_family(f"warmroute_{name}", text, ("replica",), rows)

    def _states(self) -> Metric:
        rows = (
            ((replica.replica_id, state), float(replica.health.state is state))
            for replica in self._fleet
            for state in State
            if state is not State.GONE
        )
        return gauge_family(
            "warmroute_replica_state", "1 for the state that a replica is in.", ("replica", "state"), rows
        )

    def _engines(self) -> Iterator[Metric]:
        for field, name, text in ENGINE_GAUGES:
            rows = (((replica.replica_id,), getattr(replica.report, field)) for replica in self._fleet)
            yield gauge_family(f"warmroute_engine_{name}", text, ("replica",), rows)
