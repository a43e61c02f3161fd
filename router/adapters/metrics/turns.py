"""Counts what became of turns' histories: what was lost and why, and how long turns stayed away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import Histogram, counter_family, histogram_family
from router.core.history.layout import RETURN_BOUNDS_S
from router.core.misses.types import Cause, TurnAccount

RETURN_BUCKETS_S = tuple(map(float, RETURN_BOUNDS_S))

LOSING = tuple(cause for cause in Cause if cause is not Cause.FIRST_SEEN)
"""What tokens are lost by. All are shown from the start: a rate needs the zero before the first one."""


class TurnCounts(Collector):
    """Is told of the turns, and shows them."""

    def __init__(self) -> None:
        self._missed: dict[Cause, int] = defaultdict(int, dict.fromkeys(LOSING, 0))
        self._lost_tokens: dict[Cause, int] = defaultdict(int, dict.fromkeys(LOSING, 0))
        self._first = 0
        self._in_time = Histogram(RETURN_BUCKETS_S)
        self._too_late = Histogram(RETURN_BUCKETS_S)

    def count(self, turn: TurnAccount) -> None:
        """Count a turn."""
        cause = turn.cause
        if turn.lost_tokens > 0 and cause is not None:
            self._missed[cause] += 1
            self._lost_tokens[cause] += turn.lost_tokens
        if turn.idle_s is not None:
            (self._too_late if cause is Cause.EVICTED else self._in_time).observe(turn.idle_s)
        elif turn.number == 1:  # the first turn asked for again is known
            self._first += 1

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the counts."""
        for name, text, table in (
            ("turns", "Turns that lost some of their history, by the cause of the largest part.", self._missed),
            ("tokens", "Prompt tokens computed again that could have been cached, by cause.", self._lost_tokens),
        ):
            counts = (((cause,), count) for cause, count in table.items())
            yield counter_family(f"warmroute_missed_{name}", text, ("cause",), counts)
        yield CounterMetricFamily("warmroute_first_turns", "Turns of sessions that were not known.", self._first)
        yield histogram_family(
            "warmroute_returns_seconds",
            "From the end of a turn to the next one's arrival; too late: the history had been evicted.",
            ("returned",),
            [(("in-time",), self._in_time), (("too-late",), self._too_late)],
        )
