"""A run's figures: what a row of the table shows, and what the plots draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from router.replay.plan import Answered, Result

TIME_STEPS = 24
"""Points of a plot over time: each still has hundreds of requests of an hour, enough for a p95."""
CURVE_STEPS = 100
"""Points of a distribution: a percent each."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run in numbers. Times in seconds of the simulation; nan where nothing was answered."""

    policy: str
    replicas: int
    kv_tokens: int
    """Of one replica."""
    requests: int
    """Counted ones, refused ones included."""
    hit_ratio: float
    """Prompt tokens that were found cached, 0 to 1."""
    pooled_share_ratio: float
    """Hits over those of one LRU cache as large as all replicas' together."""
    ceiling_share_ratio: float
    """Hits over those of a cache that never evicts."""
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    e2e_p50_s: float
    """From the arrival to the last token."""
    e2e_p95_s: float
    imbalance_ratio: float
    """Uncached tokens of the replica that computed most, over the mean of all; from 1 on."""
    refused_ratio: float
    """Refused requests over all, 0 to 1."""


def figures_of(result: Result) -> Figures:
    """Return the figures of a run."""
    answered, plan = result.answered, result.plan
    hit_ratio = hit_ratio_of(answered)
    ttfts_s = sorted(one.ttft_s for one in answered)
    e2es_s = sorted(one.ended_s - one.arrived_s for one in answered)
    uncached = uncached_tokens(answered, plan.replicas)
    requests = len(answered) + result.refused
    return Figures(
        policy=plan.policy,
        replicas=plan.replicas,
        kv_tokens=plan.engine.kv_tokens,
        requests=requests,
        hit_ratio=hit_ratio,
        pooled_share_ratio=_share(hit_ratio, result.pooled_ratio),
        ceiling_share_ratio=_share(hit_ratio, result.ceiling_ratio),
        ttft_p50_s=quantile(ttfts_s, 0.50),
        ttft_p95_s=quantile(ttfts_s, 0.95),
        ttft_p99_s=quantile(ttfts_s, 0.99),
        e2e_p50_s=quantile(e2es_s, 0.50),
        e2e_p95_s=quantile(e2es_s, 0.95),
        imbalance_ratio=_share(max(uncached) * plan.replicas, sum(uncached)),
        refused_ratio=_share(result.refused, requests),
    )


def quantile(ascending: Sequence[float], ratio: float) -> float:
    """The value below which `ratio` (0 to 1) of an ascending list lies; nan of an empty one."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * ratio))] if ascending else nan


def hit_ratio_of(answered: Sequence[Answered]) -> float:
    """Cached tokens over prompt tokens, 0 to 1; nan of no requests."""
    return _share(sum(one.cached_tokens for one in answered), sum(one.prompt_tokens for one in answered))


def uncached_tokens(answered: Sequence[Answered], replicas: int) -> list[int]:
    """Prompt tokens that each replica computed."""
    counts = [0] * replicas
    for one in answered:
        counts[one.replica] += one.prompt_tokens - one.cached_tokens
    return counts


def _share(part: float, whole: float) -> float:
    return part / whole if whole else nan


@dataclass(frozen=True, slots=True)
class Moment:
    """What arrived within one step of time."""

    minute: float
    """Its middle, from the start of the run."""
    hit_ratio: float
    ttft_p95_s: float


@dataclass(frozen=True, slots=True)
class Curves:
    """A run as lines to draw."""

    policy: str
    ttfts_s: list[float]
    """Ascending, `CURVE_STEPS` quantiles; empty where nothing was answered."""
    moments: list[Moment]
    uncached_tokens: list[int]
    """By replica, the busiest first."""


def curves_of(result: Result) -> Curves:
    """Return the lines of a run."""
    ttfts_s = sorted(one.ttft_s for one in result.answered)
    steps = range(CURVE_STEPS + 1) if ttfts_s else ()
    return Curves(
        policy=result.plan.policy,
        ttfts_s=[quantile(ttfts_s, step / CURVE_STEPS) for step in steps],
        moments=_moments(result),
        uncached_tokens=sorted(uncached_tokens(result.answered, result.plan.replicas), reverse=True),
    )


def _moments(result: Result) -> list[Moment]:
    if not result.answered:
        return []
    start_s = result.plan.warm_up_minutes * 60
    end_s = max(one.arrived_s for one in result.answered)
    step_s = max(1e-9, (end_s - start_s) / TIME_STEPS)
    steps: list[list[Answered]] = [[] for _ in range(TIME_STEPS)]
    for one in result.answered:
        steps[min(TIME_STEPS - 1, int((one.arrived_s - start_s) / step_s))].append(one)
    return [
        Moment(
            minute=(start_s + (number + 0.5) * step_s) / 60,
            hit_ratio=hit_ratio_of(step),
            ttft_p95_s=quantile(sorted(one.ttft_s for one in step), 0.95),
        )
        for number, step in enumerate(steps)
        if step
    ]
