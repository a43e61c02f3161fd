"""What was measured and tried, as it is read: the same lines and cells in a terminal and in a record."""

from __future__ import annotations

from math import isnan

from router.replay.advice.arithmetic import break_even_bytes_per_s, gib_of
from router.replay.advice.choice import Tried
from router.replay.advice.ladder import Sizes
from router.replay.advice.measured import Measured
from router.replay.report.rows import NOTHING

GIGA = 1e9


def headings() -> list[str]:
    """Return the columns of the table of rungs."""
    return ["rung", "hits %", "of ceiling %", "TTFT p50 s", "TTFT p95 s", "refused %", "costs"]


def cells(tried: Tried) -> list[str]:
    """Return one rung's row."""
    figures = tried.figures
    return [
        tried.rung.name,
        number(figures.hit_ratio * 100, 1),
        number(figures.ceiling_share_ratio * 100, 1),
        number(figures.ttft_p50_s, 2),
        number(figures.ttft_p95_s, 2),
        number(figures.refused_ratio * 100, 1),
        tried.rung.costs,
    ]


def number(figure: float, decimals: int) -> str:
    """Return a figure with so many decimals; a dash for none."""
    return NOTHING if isnan(figure) else f"{figure:,.{decimals}f}"


def measured_lines(measured: Measured, sizes: Sizes, prefill_tokens_per_s: float, fleet_tokens: int) -> list[str]:
    """Return the measured numbers as sentences without an end; `fleet_tokens`: what all GPU caches hold."""
    return [
        _arrivals(measured),
        *_thinking(measured),
        _session(measured, sizes),
        _prefill(measured, prefill_tokens_per_s),
        _present(measured, sizes, fleet_tokens),
        f"hits at peak: {measured.peak_hit_ratio:.1%} at {measured.peak_requests_per_s:,.2f} requests/s, in the five "
        f"minutes from {measured.peak_start_s / 60:,.0f} min on; {measured.hit_ratio:.1%} overall, "
        f"{measured.ceiling_ratio:.1%} of a cache that never evicts",
        _break_even(sizes, prefill_tokens_per_s),
    ]


def _arrivals(measured: Measured) -> str:
    return (
        f"arrivals: {measured.requests_per_s:,.2f} requests/s, {measured.sessions_per_s:,.3f} new sessions/s; "
        f"{measured.requests:,} requests, prompts of {measured.prompt_p50_tokens:,.0f} tokens at the median, "
        f"{measured.prompt_p95_tokens:,.0f} at p95"
    )


def _thinking(measured: Measured) -> list[str]:
    if isnan(measured.think_p50_s):
        return ["think times: no session comes back"]
    return [
        f"think times: {measured.think_p50_s:,.1f} s at the median, {measured.think_p90_s:,.1f} s at p90; "
        f"{measured.returned_ratio:.1%} of requests go on from an earlier one",
        f"a pinned session would be idle for {measured.idle_ratio:.0%} of the time: its turns take "
        f"{measured.busy_mean_s:,.1f} s in the engine",
    ]


def _session(measured: Measured, sizes: Sizes) -> str:
    median, p95 = (
        f"{tokens:,.0f} tokens, {gib_of(tokens, sizes.kv_token_bytes):,.2f} GiB"
        for tokens in (measured.session_p50_tokens, measured.session_p95_tokens)
    )
    return f"cache of a session: {median} at the median, {p95} at p95"


def _prefill(measured: Measured, prefill_tokens_per_s: float) -> str:
    if isnan(measured.history_p50_tokens):
        return "prefill of a full history: there is none"
    median_s, p95_s = (
        tokens / prefill_tokens_per_s for tokens in (measured.history_p50_tokens, measured.history_p95_tokens)
    )
    return f"prefill of a full history: {median_s:,.2f} s at the median, {p95_s:,.2f} s at p95"


def _present(measured: Measured, sizes: Sizes, fleet_tokens: int) -> str:
    return (
        f"to hold all present sessions ({measured.present_sessions:,} at the fullest moment): "
        f"{gib_of(measured.present_tokens, sizes.kv_token_bytes):,.1f} GiB, {measured.present_tokens:,} tokens; "
        f"all GPU caches have {gib_of(fleet_tokens, sizes.kv_token_bytes):,.1f} GiB, {fleet_tokens:,} tokens"
    )


def _break_even(sizes: Sizes, prefill_tokens_per_s: float) -> str:
    least = break_even_bytes_per_s(sizes.kv_token_bytes, prefill_tokens_per_s)
    return (
        f"break-even of offload: loading a block is quicker than computing it from {least / GIGA:,.2f} GB/s on; "
        f"reckoned with are {sizes.host_bytes_per_s / GIGA:g} GB/s from the host's memory, "
        f"{sizes.store_bytes_per_s / GIGA:g} GB/s from a shared store"
    )
