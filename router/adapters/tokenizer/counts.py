"""Counts what becomes of prompts beside the event loop, and shows it to Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import Histogram, counter_family, gauge_family, histogram_family
from router.adapters.tokenizer.agreement import Agreement
from router.adapters.tokenizer.pieces import PieceCache

_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""From a known conversation's next turn to a book that nobody has seen."""


class Result(StrEnum):
    """What became of one prompt."""

    IN_TIME = "in-time"
    """Its tokens were known before it was routed."""
    LATE = "late"
    """The deadline came first: it was routed without them. What was begun is finished, for the next turn."""
    BUSY = "busy"
    """Too many waited for their tokens already, or the body was too long."""
    UNRENDERED = "unrendered"
    """It has something in it that can't be rendered exactly: media, a template of its own, an unknown part."""
    FAILED = "failed"
    """The template or the tokenizer refused it."""
    DISTRUSTED = "distrusted"
    """The engines count other tokens for this model: it was not tokenised."""


class TokenizerCounts(Collector):
    """Since the router's start."""

    def __init__(self, agreements: Mapping[str, Agreement], caches: Mapping[str, PieceCache | None]) -> None:
        """`agreements` by the model's name in requests, `caches` by that in the settings: empty for all others."""
        self.results: dict[Result, int] = defaultdict(int)
        self._took = Histogram(_SECONDS)
        self._agreements = agreements
        self._caches = caches

    def count(self, result: Result) -> None:
        """Count one prompt."""
        self.results[result] += 1

    def took(self, seconds: float) -> None:
        """Count the time that one prompt took, from its beginning in a thread."""
        self._took.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        yield counter_family(
            "warmroute_tokenizer_requests",
            "Prompts for which the engine's tokens were wanted, by what came of it.",
            ("result",),
            (((result.value,), self.results[result]) for result in Result),
        )
        yield histogram_family(
            "warmroute_tokenizer_seconds",
            "Rendering and tokenising a prompt, from its beginning in a thread.",
            (),
            [((), self._took)],
        )
        yield from self._of_caches()
        yield counter_family(
            "warmroute_tokenizer_answers",
            "Answers by whether the engine counted as many prompt tokens as were made here.",
            ("model", "agrees"),
            (
                ((model, word), count)
                for model, seen in list(self._agreements.items())
                for word, count in (("yes", seen.agreed), ("no", seen.disagreed))
            ),
        )

    def _of_caches(self) -> Iterator[Metric]:
        caches = [(name, cache) for name, cache in self._caches.items() if cache is not None]
        yield counter_family(
            "warmroute_tokenizer_tokens",
            "Tokens by where they came from: known pieces of text, or new ones.",
            ("model", "source"),
            (
                ((name, word), count)
                for name, cache in caches
                for word, count in (("cache", cache.found_tokens), ("text", cache.added_tokens))
            ),
        )
        yield gauge_family(
            "warmroute_tokenizer_cache_bytes",
            "Ids of known pieces of text.",
            ("model",),
            (((name,), cache.size_bytes) for name, cache in caches),
        )
