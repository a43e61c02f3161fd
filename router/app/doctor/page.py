"""A vLLM's /metrics, read as a whole: sums, labels, a histogram's median."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
EXTERNAL_QUERIES = ("vllm:external_prefix_cache_queries_total",)
EXTERNAL_HITS = ("vllm:external_prefix_cache_hits_total",)
"""Where there are two names, the second is that of releases before 0.11."""
FETCHES = "vllm:num_requests_kv_fetch_by_stage"
"""There with a KV connector only."""

START = "process_start_time_seconds"
IDLE = "vllm:kv_block_idle_before_evict_seconds"

Labels = dict[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Counters:
    """An engine's prefix cache counters at one moment, its ranks together. Tokens since its start."""

    queries_tokens: float
    hits_tokens: float
    """Those of the engine's own cache."""
    external_hits_tokens: float
    """Those of a KV connector's."""
    start_s: float | None


class Page:
    """The samples of one exposition, by name."""

    def __init__(self, samples: dict[str, list[Sample]]) -> None:
        self._samples = samples

    @property
    def is_vllm(self) -> bool:
        """Tell whether a vLLM wrote it."""
        return any(name.startswith("vllm:") for name in self._samples)

    def samples(self, name: str) -> list[Sample]:
        """Return all samples of a name, each with its labels."""
        return self._samples.get(name, [])

    def total(self, *names: str) -> float | None:
        """Return the sum over the samples of the first name that there is; None: there is none."""
        return next((sum(value for _, value in self.samples(name)) for name in names if self.samples(name)), None)

    @property
    def cache(self) -> Labels:
        """The labels of cache_config_info; those of the first rank."""
        return next((labels for labels, _ in self.samples("vllm:cache_config_info")), {})

    @property
    def ranks(self) -> int:
        """How many data-parallel ranks it tells of; 1 where it has no such label."""
        return (
            len({labels["engine"] for labels, _ in self.samples("vllm:num_requests_running") if "engine" in labels})
            or 1
        )

    @property
    def counters(self) -> Counters:
        """The prefix cache counters; what is missing counts as 0."""
        return Counters(
            self.total(*QUERIES) or 0.0,
            self.total(*HITS) or 0.0,
            self.total(*EXTERNAL_HITS) or 0.0,
            self.total(START),
        )

    @property
    def identity(self) -> tuple[float, ...] | None:
        """What two readings of one engine share and no two engines do: when its process and its counters began."""
        start_s = self.total(START)
        created = [value for name in QUERIES for _, value in self.samples(name.replace("_total", "_created"))]
        return None if start_s is None else (start_s, *created)

    def median(self, name: str) -> float | None:
        """Return the median of a histogram, ranks together, linear within its bucket; None: nothing was observed.

        The last bound stands for all that is above it.
        """
        counts: dict[float, float] = defaultdict(float)
        for labels, count in self.samples(f"{name}_bucket"):
            counts[float(labels.get("le", "inf"))] += count
        half = counts.get(math.inf, 0.0) / 2
        if not half:
            return None
        below_s = below = 0.0
        for bound_s, count in sorted(counts.items()):
            if count >= half:
                share = (half - below) / (count - below)
                return below_s if math.isinf(bound_s) else below_s + share * (bound_s - below_s)
            below_s, below = bound_s, count
        return None


def read_page(text: str) -> Page | None:
    """Read an exposition; None: it is none, or a garbled one."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    try:
        for name, labels, value in _parsed(text):
            samples[name].append((labels, value))
    except (ValueError, KeyError, IndexError):
        return None
    return Page(dict(samples)) if samples else None


def _parsed(text: str) -> Iterator[tuple[str, Labels, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if math.isfinite(sample.value):
                yield sample.name, dict(sample.labels), sample.value
