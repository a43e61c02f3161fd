"""Counts requests and shows the fleet to Prometheus.

Counting is adding to plain numbers, since it happens once per request in the data plane; Prometheus' objects are made
when /metrics is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router.core.fleet import Fleet
from router.core.health import State
from router.core.types import OutcomeKind, ReplicaId
from router.ports import RequestRecord

F = TypeVar("F", CounterMetricFamily, GaugeMetricFamily)

TTFT_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
"""From a warm turn on a fast engine to a queue that nobody waits for."""

OVERHEAD_BUCKETS_S = (
    0.000_02, 0.000_05, 0.000_1, 0.000_15, 0.000_2, 0.000_3, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
)  # fmt: skip
"""Around the 150 microseconds that a decision may take."""

MAX_MODEL_LABELS = 64
"""Model names come from clients: beyond this many they share the label `other`."""


GONE = "gone"
"""Stands for replicas that left before their last request ended: a label set of their own would never go again."""


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


class Row:
    """The counts of one replica and model."""

    __slots__ = ("cached", "predicted", "prompt", "requests", "ttft_cold", "ttft_warm")

    def __init__(self) -> None:
        self.requests: dict[int, int] = defaultdict(int)
        self.prompt = 0
        self.predicted = 0
        self.cached = 0
        self.ttft_warm = Histogram(TTFT_BUCKETS_S)
        self.ttft_cold = Histogram(TTFT_BUCKETS_S)


class FleetCollector(Collector):
    """The observer that counts, and the collector that shows. `clock` in monotonic seconds, as the fleet's."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._rows: dict[tuple[ReplicaId, str], Row] = {}
        self._models: set[str] = set()
        self._decisions: dict[tuple[str, str], int] = defaultdict(int)
        self._failures: dict[tuple[ReplicaId, str], int] = defaultdict(int)
        self._errors: dict[str, int] = defaultdict(int)
        self._clients: dict[tuple[str, str], int] = defaultdict(int)
        self._overhead = Histogram(OVERHEAD_BUCKETS_S)
        self._recalls: dict[str, int] = defaultdict(int)

    def request_finished(self, record: RequestRecord) -> None:
        """Count a finished request."""
        self._overhead.observe(record.overhead_s)
        if record.error is not None:
            self._errors[record.error] += 1
        if record.client:
            self._clients[record.client, str(record.status)] += 1
        if record.source is not None:
            self._recalls[record.source] += 1
        decision = record.decision
        replica = "" if decision is None else self._replica_label(decision.replica)
        row = self._row(replica, self._model_label(record.model))
        row.requests[record.status] += 1
        if decision is None:
            return
        self._decisions[replica, decision.reason] += 1
        usage = record.usage
        if record.status < 400:
            row.prompt += usage.prompt_tokens if usage.prompt_tokens is not None else decision.prompt_tokens
            row.predicted += decision.matched_tokens
            row.cached += usage.cached_tokens or 0
        if record.ttft_s is not None and record.streaming:
            (row.ttft_warm if decision.matched_tokens else row.ttft_cold).observe(record.ttft_s)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Count a failed attempt."""
        self._failures[self._replica_label(replica), kind] += 1

    def forget(self, replica: ReplicaId) -> None:
        """Drop the label sets of a replica that left the fleet."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != replica}
        for table in (self._decisions, self._failures):
            for key in [key for key in table if key[0] == replica]:
                del table[key]

    def _row(self, replica: ReplicaId, model: str) -> Row:
        row = self._rows.get((replica, model))
        if row is None:
            row = self._rows[replica, model] = Row()
        return row

    def _replica_label(self, replica: ReplicaId) -> str:
        return replica if replica in self._fleet else GONE

    def _model_label(self, model: str) -> str:
        if model in self._models:
            return model
        if len(self._models) >= MAX_MODEL_LABELS:
            return "other"
        self._models.add(model)
        return model

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts and of the fleet as it is now."""
        yield from self._request_metrics()
        yield from self._token_metrics()
        yield self._ttft()
        yield histogram_family(
            "warmroute_overhead_seconds",
            "The router's own time from a whole request to its dispatch.",
            (),
            [((), self._overhead)],
        )
        yield from self._replica_gauges()
        yield self._states()
        yield from self._engine_gauges()
        yield GaugeMetricFamily("warmroute_index_bytes", "Memory of the index of prompts and sessions.",
                                self._fleet.index.size_bytes)  # fmt: skip

    def _request_metrics(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "warmroute_requests", "Finished requests.", labels=("replica", "model", "status")
        )
        for (replica, model), row in self._rows.items():
            for status, count in row.requests.items():
                requests.add_metric((replica, model, str(status)), count)
        yield requests
        yield counter_family(
            "warmroute_client_requests", "Finished requests by the name of their key.", ("client", "status"),
            self._clients.items(),
        )  # fmt: skip
        recalls = (((source,), count) for source, count in self._recalls.items())
        yield counter_family(
            "warmroute_recalls", "Requests by where what is known of them came from.", ("source",), recalls
        )
        decisions = self._decisions.items()
        yield counter_family("warmroute_decisions", "Decisions by reason.", ("replica", "reason"), decisions)
        yield counter_family(
            "warmroute_attempt_failures", "Failed attempts by kind.", ("replica", "kind"), self._failures.items()
        )
        errors = (((code,), count) for code, count in self._errors.items())
        yield counter_family("warmroute_errors", "Errors that the router itself answered, by code.", ("code",), errors)

    def _token_metrics(self) -> Iterator[Metric]:
        for name, text, field in (
            ("warmroute_prompt_tokens", "Prompt tokens of answered requests.", "prompt"),
            ("warmroute_predicted_cached_tokens", "Prompt tokens the router expected to be cached.", "predicted"),
            ("warmroute_engine_cached_tokens", "Prompt tokens the engines reported as cached.", "cached"),
        ):
            counts = ((key, getattr(row, field)) for key, row in self._rows.items())
            yield counter_family(name, text, ("replica", "model"), counts)

    def _ttft(self) -> Metric:
        rows = [
            ((*key, cache), getattr(row, f"ttft_{cache}"))
            for key, row in self._rows.items()
            for cache in ("warm", "cold")
        ]
        return histogram_family(
            "warmroute_ttft_seconds",
            "From a whole request to the first content byte of a streamed answer; warm: cached tokens were expected.",
            ("replica", "model", "cache"),
            rows,
        )

    def _replica_gauges(self) -> Iterator[Metric]:
        now = self._clock()
        fleet = list(self._fleet)
        for name, text, values in (
            ("inflight_requests", "Requests in flight.", [r.ledger.streams for r in fleet]),
            ("ledger_tokens", "Uncached tokens sent, not yet prefilled.", [r.ledger.uncached_tokens for r in fleet]),
            ("replica_up", "1 while a replica takes requests.", [int(r.health.up) for r in fleet]),
            ("replica_pressure_ratio", "Saturation, 0 idle to 1 full.", [r.pressure_ratio(now) for r in fleet]),
            ("prefill_tokens_per_second", "Learnt prefill rate.", [r.rate.tokens_per_s for r in fleet]),
            ("mirror_blocks", "Prompt blocks the replica is believed to hold.", [len(r.mirror) for r in fleet]),
        ):
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

    def _engine_gauges(self) -> Iterator[Metric]:
        for field, name, text in (
            ("running", "running_requests", "Requests running, as the engine says."),
            ("waiting", "waiting_requests", "Requests waiting, as the engine says."),
            ("kv_usage_ratio", "kv_usage_ratio", "KV blocks held by live requests / all, as the engine says."),
            ("kv_tokens", "kv_capacity_tokens", "Capacity of the engine's KV cache."),
            ("prefix_queries_tokens", "prefix_queries_tokens", "The engine's prefix cache queries since its start."),
            ("prefix_hits_tokens", "prefix_hits_tokens", "The engine's prefix cache hits since its start."),
            ("preemptions", "preemptions", "The engine's preemptions since its start."),
        ):
            values = ((replica.replica_id, getattr(replica.report, field)) for replica in self._fleet)
            rows = (((replica_id,), value) for replica_id, value in values if value is not None)  # unknown is absent
            yield gauge_family(f"warmroute_engine_{name}", text, ("replica",), rows)


def counter_family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], int]]
) -> CounterMetricFamily:
    """Make a counter of rows of label values and number."""
    return _filled(CounterMetricFamily(name, text, labels=labels), rows)


def gauge_family(
    name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    """Make a gauge of rows of label values and number."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), rows)


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
        buckets, total = histogram.cumulative()
        family.add_metric(values, buckets, total)
    return family
