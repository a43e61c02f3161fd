"""The table at the end of the demo: what each policy reached on the same chats."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from router.app.demo.chats import Outcome

POOLED_SHARE_RATIO = 0.95
"""Hits that affinity should reach of what one cache of the fleet's size would."""
BUSIEST_RATIO = 1.3
"""Uncached tokens that no replica should exceed, as a multiple of the fleet's mean."""


@dataclass(frozen=True, slots=True)
class Result:
    """A policy's figures. TTFT is in seconds of the simulated replicas."""

    requests: int
    hit_ratio: float
    pooled_hit_ratio: float
    ttft_p50_s: float
    ttft_p95_s: float
    requests_per_replica: tuple[int, ...]
    busiest_ratio: float
    """Uncached tokens of the replica that computed most, over the mean of all."""

    @property
    def pooled_share_ratio(self) -> float:
        return self.hit_ratio / self.pooled_hit_ratio if self.pooled_hit_ratio else 0.0


def result_of(outcome: Outcome, replicas: int, pooled_hit_ratio: float, time_scale: float) -> Result:
    """The figures of a run over `replicas` replicas, of at least two answers."""
    requests: Counter[str] = Counter()
    uncached_tokens: Counter[str] = Counter()
    for answer in outcome.answers:
        requests[answer.replica] += 1
        uncached_tokens[answer.replica] += answer.uncached_tokens
    ttft_s = statistics.quantiles([answer.ttft_s * time_scale for answer in outcome.answers], n=20, method="inclusive")
    idle = [0] * (replicas - len(requests))
    return Result(
        requests=len(outcome.answers),
        hit_ratio=outcome.hit_ratio,
        pooled_hit_ratio=pooled_hit_ratio,
        ttft_p50_s=ttft_s[9],
        ttft_p95_s=ttft_s[18],
        requests_per_replica=tuple(sorted([*requests.values(), *idle], reverse=True)),
        busiest_ratio=max(uncached_tokens.values()) * replicas / uncached_tokens.total(),
    )


def table(results: dict[str, Result]) -> Table:
    """One column for each policy, one row for each figure."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("")
    for name in results:
        shown.add_column(name, justify="right")
    for label, cells in _rows(list(results.values())):
        shown.add_row(label, *cells)
    return shown


def _rows(results: Sequence[Result]) -> list[tuple[str, list[str]]]:
    return [
        ("requests answered", [f"{result.requests}" for result in results]),
        ("hit rate (prompt tokens found in cache)", [f"{result.hit_ratio:.3f}" for result in results]),
        ("  one pooled cache of the fleet's size", [f"{result.pooled_hit_ratio:.3f}" for result in results]),
        ("TTFT p50, s", [f"{result.ttft_p50_s:.2f}" for result in results]),
        ("TTFT p95, s", [f"{result.ttft_p95_s:.2f}" for result in results]),
        ("requests per replica", [" ".join(map(str, result.requests_per_replica)) for result in results]),
        ("uncached tokens, busiest replica / mean", [f"{result.busiest_ratio:.2f}" for result in results]),
    ]


def verdicts(result: Result) -> list[str]:
    """The two figures that prefix affinity should reach, and whether it did."""
    hits = result.pooled_share_ratio
    busiest = result.busiest_ratio
    return [
        f"hit rate {hits:.3f} of the pooled cache's, {POOLED_SHARE_RATIO} or more wanted: "
        f"{_mark(hits >= POOLED_SHARE_RATIO)}",
        f"busiest replica at {busiest:.2f} of the mean of uncached tokens, {BUSIEST_RATIO} or less wanted: "
        f"{_mark(busiest <= BUSIEST_RATIO)}",
    ]


def _mark(reached: bool) -> str:
    return "[green]reached[/]" if reached else "[red]missed[/]"
