"""The table at the end of the demo: what each policy reached on the same chats."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.table import Table

from router.app.demo.chats import Outcome

POOLED_SHARE_RATIO = 0.95
"""Hits that affinity should reach of what one cache of the fleet's size would."""
BUSIEST_RATIO = 1.3
"""Uncached tokens that no replica should exceed, as a multiple of the fleet's mean."""
MOST_LAG_S = 0.25
"""How late the demo's processes may be, in seconds of the replicas. Two cores with nothing else to do: 0.05. A tenth of
round robin's p95 TTFT, so that what is later than this may be the machine's doing and not the policy's."""


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
    lag_p95_s: Mapping[str, float] = field(default_factory=dict)
    """How late each of the demo's processes was; seconds of the simulated replicas."""

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
        lag_p95_s=outcome.lateness.p95_s(time_scale),
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


def verdicts(result: Result, other: Result) -> list[str]:
    """What prefix affinity should reach, and whether it did: hits, balance, and no longer waits than `other`'s.

    Times are not said to be reached where the machine was too busy for them to mean anything; a line more says so.
    """
    hits = result.pooled_share_ratio
    busiest = result.busiest_ratio
    return [
        f"hit rate {hits:.3f} of the pooled cache's, {POOLED_SHARE_RATIO} or more wanted: "
        f"{_mark(hits >= POOLED_SHARE_RATIO)}",
        f"busiest replica at {busiest:.2f} of the mean of uncached tokens, {BUSIEST_RATIO} or less wanted: "
        f"{_mark(busiest <= BUSIEST_RATIO)}",
        *_verdicts_on_times(result, other),
    ]


def _verdicts_on_times(result: Result, other: Result) -> list[str]:
    worst_s = _worst(result.lag_p95_s, other.lag_p95_s)
    too_busy = max(worst_s.values(), default=0.0) > MOST_LAG_S
    worse = [rank for rank, ours_s, theirs_s in _times(result, other) if ours_s > theirs_s]
    shown = ", ".join(
        f"{rank} {ours_s:.2f} s against {theirs_s:.2f}" for rank, ours_s, theirs_s in _times(result, other)
    )
    compared = f"{' and '.join(worse)} worse than round robin's" if worse else "no worse than round robin's"
    mark = "[yellow]not judged[/]" if too_busy else _mark(not worse)
    lines = [f"TTFT {shown}, {compared}: {mark}"]
    if too_busy:
        late = ", ".join(f"{process} {late_s:.2f} s" for process, late_s in worst_s.items())
        lines.append(
            f"[yellow]this machine was too busy for the times to mean anything[/]; hits and balance hold "
            f"(p95 of how late each process was: {late}; {MOST_LAG_S} s or less wanted)"
        )
    return lines


def _times(result: Result, other: Result) -> list[tuple[str, float, float]]:
    return [("p50", result.ttft_p50_s, other.ttft_p50_s), ("p95", result.ttft_p95_s, other.ttft_p95_s)]


def _worst(*lags_s: Mapping[str, float]) -> dict[str, float]:
    """The later of the runs, by process."""
    processes = dict.fromkeys(process for lag_s in lags_s for process in lag_s)
    return {process: max(lag_s.get(process, 0.0) for lag_s in lags_s) for process in processes}


def _mark(reached: bool) -> str:
    return "[green]reached[/]" if reached else "[red]missed[/]"
