"""What a running router and its engines say of the traffic and of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import msgspec

from router.app.doctor.asking import asking
from router.app.terminal.admin import Admin
from router.app.terminal.figures import DecisionRow, Totals, ratio
from router.replay.advice.triggers import Facts
from router.replay.report.figures import quantile

WINDOW, WINDOW_S = "1h", 3_600.0
"""Arrivals are of the last hour: the last day has a night in it."""

DECISIONS = 1_000
"""All that the router keeps."""

NEW = ("new", "shared")
"""Reasons of a session's first request."""


class Returns(msgspec.Struct):
    """How many sessions were away up to each bound, and beyond the last."""

    bounds_s: list[float] = []
    in_time: list[int] = []
    too_late: list[int] = []


class _Window(Totals):
    reasons: dict[str, int] = {}
    returns: Returns = msgspec.field(default_factory=Returns)


class _Engine(msgspec.Struct):
    kv_tokens: int | None = None


class _Replica(msgspec.Struct):
    url: str
    prefill_tokens_per_s: float | None = None
    engine: _Engine | None = None


class _Recording(msgspec.Struct):
    file: str


class _Overview(msgspec.Struct):
    uptime_s: float
    windows: dict[str, _Window]
    replicas: list[_Replica]
    models: dict[str, msgspec.Raw] = {}
    recording: _Recording | None = None


class Day(msgspec.Struct):
    """Columns of `/api/history`, one number a step; None where no router ran."""

    step_s: float
    requests: list[int | None] = []
    reported_prompt_tokens: list[int | None] = []
    engine_cached_tokens: list[int | None] = []
    counter_queries_tokens: list[int | None] = []
    counter_hits_tokens: list[int | None] = []


class _Version(msgspec.Struct):
    version: str


@dataclass(frozen=True, slots=True)
class Live:
    """A running set-up. 0 or None: not known."""

    facts: Facts
    lines: list[str]
    recording: str | None
    """Where the router writes its recording."""
    replicas: int
    kv_tokens: int
    """Of a replica, the smallest."""
    prefill_tokens_per_s: float


def read_live(url: str) -> Live:
    """Ask the admin port at `url`. ConfigError: it does not answer."""
    return asyncio.run(_read(url))


async def _read(url: str) -> Live:
    admin = Admin(url)
    try:
        overview = await admin.told("api/overview", _Overview)
        day = await admin.told("api/history", Day, window="24h")
        decisions = await admin.decisions(DECISIONS)
    finally:
        await admin.close()
    return live_of(overview, day, decisions, await _versions([replica.url for replica in overview.replicas]))


async def _versions(urls: Sequence[str]) -> str | None:
    """Releases of the engines, with commas between; None where none says it."""
    async with asking() as asker:
        replies = await asyncio.gather(*(asker.get(f"{url}/version") for url in dict.fromkeys(urls)))
    found = {str(reply.told["version"]) for reply in replies if reply.ok and "version" in reply.told}
    return ", ".join(sorted(found)) or None


def live_of(overview: _Overview, day: Day, decisions: Sequence[DecisionRow], vllm_version: str | None) -> Live:
    """Return what the answers say."""
    window, span_s = overview.windows[WINDOW], max(1.0, min(WINDOW_S, overview.uptime_s))
    begun = sum(window.reasons.get(reason, 0) for reason in NEW)
    peak_per_s, peak_ratio = peak_of(day)
    facts = Facts(
        models=tuple(sorted(overview.models)),
        vllm_version=vllm_version,
        prompt_p95_tokens=_prompt_p95(decisions),
        requests_per_s=window.requests / span_s if window.requests else None,
        sessions_per_s=begun / span_s if begun else None,
        peak_hit_ratio=peak_ratio,
    )
    speeds = [replica.prefill_tokens_per_s for replica in overview.replicas if replica.prefill_tokens_per_s]
    sizes = [replica.engine.kv_tokens for replica in overview.replicas if replica.engine and replica.engine.kv_tokens]
    return Live(
        facts=facts,
        lines=_lines(facts, peak_per_s, window.returns),
        recording=overview.recording.file if overview.recording else None,
        replicas=len(overview.replicas),
        kv_tokens=min(sizes, default=0),
        prefill_tokens_per_s=sum(speeds) / len(speeds) if speeds else 0.0,
    )


def peak_of(day: Day) -> tuple[float | None, float | None]:
    """Return requests/s and hit rate of the busiest step; None where there is nothing to go by."""
    requests = [count or 0 for count in day.requests]
    if not any(requests):
        return None, None
    at = requests.index(max(requests))
    reported = ratio(day.engine_cached_tokens[at] or 0, day.reported_prompt_tokens[at] or 0)
    counted = ratio(day.counter_hits_tokens[at] or 0, day.counter_queries_tokens[at] or 0)
    return requests[at] / day.step_s, counted if reported is None else reported


def think_bound_s(returns: Returns, share: float) -> float | None:
    """Return the end of the bin in which `share` (0 to 1) of the sessions that came back were back.

    Infinite for the last one; None where nobody came back.
    """
    counts = [sum(pair) for pair in zip(returns.in_time, returns.too_late, strict=True)]
    if not any(counts):
        return None
    bounds = [*returns.bounds_s, inf]
    return next(
        bound for bound, passed in zip(bounds, accumulate(counts), strict=True) if passed >= sum(counts) * share
    )


def _prompt_p95(decisions: Sequence[DecisionRow]) -> float | None:
    given = [row.usage.prompt_tokens or (row.decision.prompt_tokens if row.decision else 0) for row in decisions]
    known = sorted(float(tokens) for tokens in given if tokens)
    return quantile(known, 0.95) if known else None


def _lines(facts: Facts, peak_per_s: float | None, returns: Returns) -> list[str]:
    median_s, p90_s = think_bound_s(returns, 0.5), think_bound_s(returns, 0.9)
    return [
        f"arrivals in the last hour: {_number(facts.requests_per_s)} requests/s, {_number(facts.sessions_per_s)} new "
        "sessions/s",
        f"busiest five minutes of the day: {_number(peak_per_s)} requests/s, hits {_percent(facts.peak_hit_ratio)}",
        f"prompts: {_number(facts.prompt_p95_tokens, 0)} tokens at p95 of the last requests",
        f"sessions were back within {_number(median_s, 0)} s at the median, {_number(p90_s, 0)} s at p90",
        f"models: {', '.join(facts.models) or 'none yet'}; vLLM {facts.vllm_version or 'of a release not known'}",
    ]


def _number(figure: float | None, decimals: int = 2) -> str:
    return "not known" if figure is None else f"{figure:,.{decimals}f}"


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{share:.1%}"
