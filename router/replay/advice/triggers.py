"""When a decision is to be looked at again: what it was made with, against what is now."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

LONGER_RATIO = 1.25
"""Prompts' 95th percentile: a quarter more per session fits a quarter fewer sessions into the same memory."""

MORE_RATIO = 1.5
"""Arrivals: half as many again is beyond what a day's ups and downs make of an hour that was measured at its peak."""

LOST_RATIO = 0.05
"""Hits at peak: 5 points are far more than two hours of the same traffic differ by."""


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a decision depends on; None, or nothing, is not known."""

    model: str | None = None
    """As it was named for the record."""
    models: tuple[str, ...] = ()
    """That a live router served."""
    vllm_version: str | None = None
    driver: str | None = None
    prompt_p95_tokens: float | None = None
    requests_per_s: float | None = None
    sessions_per_s: float | None = None
    peak_hit_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Trigger:
    """One reason to decide anew."""

    name: str
    fired: bool | None
    """None: one of both is not known."""
    told: str
    """What was and what is."""


def triggers(before: Facts, now: Facts) -> list[Trigger]:
    """Return every trigger, fired or not, in the order in which the record lists them."""
    return [
        _other("new model", before.model, now.model),
        _added("second team: another model", before.models, now.models),
        _other("vLLM release", before.vllm_version, now.vllm_version),
        _other("driver", before.driver, now.driver),
        _grown("longer contexts: prompt p95, tokens", before.prompt_p95_tokens, now.prompt_p95_tokens, LONGER_RATIO),
        _grown("requests/s", before.requests_per_s, now.requests_per_s, MORE_RATIO),
        _grown("second team: new sessions/s", before.sessions_per_s, now.sessions_per_s, MORE_RATIO),
        _fallen("hits at peak", before.peak_hit_ratio, now.peak_hit_ratio),
    ]


def _other(name: str, was: str | None, now: str | None) -> Trigger:
    if was is None or now is None:
        return Trigger(name, None, _told(was, now))
    return Trigger(name, was != now, _told(was, now))


def _added(name: str, was: tuple[str, ...], now: tuple[str, ...]) -> Trigger:
    told = _told(", ".join(was) or None, ", ".join(now) or None)
    return Trigger(name, bool(set(now) - set(was)) if was and now else None, told)


def _grown(name: str, was: float | None, now: float | None, ratio: float) -> Trigger:
    told = _told(*(None if one is None else f"{one:,.4g}" if one < 1_000 else f"{one:,.0f}" for one in (was, now)))
    if was is None or now is None:
        return Trigger(name, None, told)
    return Trigger(name, now > 0 and now >= was * ratio, told)


def _fallen(name: str, was: float | None, now: float | None) -> Trigger:
    told = _told(*(None if one is None else f"{one:.1%}" for one in (was, now)))
    if was is None or now is None:
        return Trigger(name, None, told)
    # Written to four digits, so that a fall of just 5 points is one.
    return Trigger(name, round(was - now, 4) >= LOST_RATIO, told)


def _told(was: str | None, now: str | None) -> str:
    return f"{was or 'not known'} -> {now or 'not known'}"
