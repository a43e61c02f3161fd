"""Counts finished requests, failed attempts and prompt tokens, by replica and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import Histogram, counter_family, histogram_family
from router.core.fleet import Fleet
from router.core.types import Decision, OutcomeKind, ReplicaId
from router.ports import RequestRecord

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


class Row:
    """The counts of one replica and model."""

    __slots__ = (
        "cached", "error", "predicted", "prompt", "reported", "requests", "saved_s", "ttft_cold", "ttft_warm",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests: dict[int, int] = defaultdict(int)
        self.prompt = 0
        self.predicted = 0
        self.reported = 0
        """Prompt tokens of answers in which the engine said what was cached."""
        self.cached = 0
        self.error = 0
        """Tokens by which prediction and report differ, whichever is more."""
        self.saved_s = 0.0
        self.ttft_warm = Histogram(TTFT_BUCKETS_S)
        self.ttft_cold = Histogram(TTFT_BUCKETS_S)

    def count_tokens(self, record: RequestRecord, decision: Decision, tokens_per_s: float | None) -> None:
        """Count an answer's prompt; `tokens_per_s`: the replica's prefill rate, None where it has left."""
        usage, cached = record.usage, decision.matched_tokens
        prompt = decision.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
        self.prompt += prompt
        self.predicted += cached
        if usage.cached_tokens is not None:
            self.error += abs(cached - usage.cached_tokens)
            cached = usage.cached_tokens
            self.reported += prompt
            self.cached += cached
        if tokens_per_s is not None:
            self.saved_s += cached / tokens_per_s


class RequestCounts(Collector):
    """The observer that counts, and the collector that shows."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
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
        if decision is None:
            self._row("", record.model).requests[record.status] += 1
        else:
            self._count_sent(record, decision)

    def _count_sent(self, record: RequestRecord, decision: Decision) -> None:
        replica = self._fleet.get(decision.replica)
        label = GONE if replica is None else decision.replica
        row = self._row(label, record.model)
        row.requests[record.status] += 1
        self._decisions[label, decision.reason] += 1
        if record.status < 400:
            row.count_tokens(record, decision, None if replica is None else replica.prefill.tokens_per_s)
        if record.ttft_s is not None and record.streaming:
            (row.ttft_warm if decision.matched_tokens else row.ttft_cold).observe(record.ttft_s)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Count a failed attempt."""
        self._failures[replica if replica in self._fleet else GONE, kind] += 1

    def forget(self, replica: ReplicaId) -> None:
        """Drop the label sets of a replica that left the fleet."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != replica}
        for table in (self._decisions, self._failures):
            for key in [key for key in table if key[0] == replica]:
                del table[key]

    def _row(self, replica: ReplicaId, model: str) -> Row:
        return self._rows.get((replica, model)) or self._labelled_row(replica, self._model_label(model))

    def _labelled_row(self, replica: ReplicaId, label: str) -> Row:
        row = self._rows.get((replica, label))
        if row is None:
            row = self._rows[replica, label] = Row()
        return row

    def _model_label(self, model: str) -> str:
        if model in self._models:
            return model
        if len(self._models) >= MAX_MODEL_LABELS:
            return "other"
        self._models.add(model)
        return model

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        yield from self._request_metrics()
        sent = {key: row for key, row in self._rows.items() if key[0]}
        yield from _token_metrics(sent)
        yield from _replica_metrics(sent)
        yield _ttft(sent)
        yield histogram_family(
            "warmroute_overhead_seconds",
            "The router's own time from a whole request to its dispatch.",
            (),
            [((), self._overhead)],
        )

    def _request_metrics(self) -> Iterator[Metric]:
        requests = (
            ((*key, str(status)), count) for key, row in self._rows.items() for status, count in row.requests.items()
        )
        yield counter_family("warmroute_requests", "Finished requests.", ("replica", "model", "status"), requests)
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


def _token_metrics(rows: dict[tuple[ReplicaId, str], Row]) -> Iterator[Metric]:
    for name, text, field in (
        ("prompt_tokens", "Prompt tokens of answered requests.", "prompt"),
        ("predicted_cached_tokens", "Prompt tokens the router expected to be cached.", "predicted"),
        ("reported_prompt_tokens", "Prompt tokens of answers in which the engine said what was cached.", "reported"),
        ("engine_cached_tokens", "Prompt tokens the engines reported as cached.", "cached"),
    ):
        counts = ((key, getattr(row, field)) for key, row in rows.items())
        yield counter_family(f"warmroute_{name}", text, ("replica", "model"), counts)


def _replica_metrics(rows: dict[tuple[ReplicaId, str], Row]) -> Iterator[Metric]:
    for name, text, field in (
        ("mirror_error_tokens", "Prompt tokens by which prediction and report of what is cached differ.", "error"),
        ("saved_prefill_seconds", "Prefill of the cached prompt tokens, at the replica's learnt rate.", "saved_s"),
    ):
        sums: dict[ReplicaId, float] = defaultdict(float)
        for (replica, _), row in rows.items():
            sums[replica] += getattr(row, field)
        counts = (((replica,), value) for replica, value in sums.items())
        yield counter_family(f"warmroute_{name}", text, ("replica",), counts)


def _ttft(rows: dict[tuple[ReplicaId, str], Row]) -> Metric:
    times = (((*key, cache), getattr(row, f"ttft_{cache}")) for key, row in rows.items() for cache in ("warm", "cold"))
    return histogram_family(
        "warmroute_ttft_seconds",
        "From a whole request to the first content byte of a streamed answer; warm: cached tokens were expected.",
        ("replica", "model", "cache"),
        times,
    )
