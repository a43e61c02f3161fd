"""Counts where requests' time went: the phases, and the time to the first token by the prompt's length."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import Histogram, histogram_family
from router.adapters.metrics.requests import TTFT_BUCKETS_S
from router.core.history.layout import LENGTHS, LENGTHS_TOKENS
from router.core.waiting import Priority
from router.ports import RequestRecord

PHASE_BUCKETS_S = (
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 320.0,
)  # fmt: skip
"""From a decision to a long generation, since one metric holds them all."""

PHASES = ("overhead", "queue", "retry", "connect", "prefill", "decode", "total")

CACHE = {True: "warm", False: "cold"}

_PRIORITY = {True: Priority.BATCH.name.lower(), False: Priority.INTERACTIVE.name.lower()}

BOTH = (True, False)

Histograms = tuple[Histogram, ...]
"""One for each phase, or for each length."""


class PhaseTimes(Collector):
    """The observer that counts, and the collector that shows. A kind of answers is shown from its first one on."""

    def __init__(self) -> None:
        self._phases = {(warm, batch): _histograms(PHASE_BUCKETS_S, PHASES) for warm in BOTH for batch in BOTH}
        self._lengths = {warm: _histograms(TTFT_BUCKETS_S, LENGTHS) for warm in BOTH}

    def request_finished(self, record: RequestRecord) -> None:
        """Count a request that was sent to a replica."""
        decision = record.decision
        if decision is None:
            return
        warm = decision.matched_tokens > 0
        if record.status < 400:
            self._count_phases(self._phases[warm, record.batch], record)
        if record.ttft_s is not None and record.streaming:
            reported = record.usage.prompt_tokens
            length_tokens = decision.prompt_tokens if reported is None else reported
            self._lengths[warm][bisect_left(LENGTHS_TOKENS, length_tokens)].observe(record.ttft_s)

    def _count_phases(self, histograms: Histograms, record: RequestRecord) -> None:
        overhead, queue, retry, connect, prefill, decode, total = histograms
        if record.streaming:
            if record.prefill_s is None or record.decode_s is None:
                return  # nothing came of it, and its phases would not add up to its total
            prefill.observe(record.prefill_s)
            decode.observe(record.decode_s)
        overhead.observe(record.overhead_s)
        queue.observe(record.queued_s)
        retry.observe(record.retried_s)
        connect.observe(record.connect_s)
        total.observe(record.total_s)

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        phases = (
            ((phase, CACHE[warm], _PRIORITY[batch]), histogram)
            for (warm, batch), histograms in self._phases.items()
            if histograms[-1]
            for phase, histogram in zip(PHASES, histograms, strict=True)
        )
        yield histogram_family(
            "warmroute_phase_seconds",
            "Where the time of answers went; prefill and decode of streamed ones only.",
            ("phase", "cache", "priority"),
            phases,
        )
        lengths = (
            ((label, CACHE[warm]), histogram)
            for warm, histograms in self._lengths.items()
            for label, histogram in zip(LENGTHS, histograms, strict=True)
            if histogram
        )
        yield histogram_family(
            "warmroute_ttft_by_prompt_length_seconds",
            "From a whole request to the first content byte of a streamed answer, by the prompt's length.",
            ("prompt_tokens", "cache"),
            lengths,
        )


def _histograms(bounds: Sequence[float], labels: Sequence[str]) -> Histograms:
    return tuple(Histogram(bounds) for _ in labels)
