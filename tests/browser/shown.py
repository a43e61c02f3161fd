"""Numbers as the page shows them, written once more for the tests: three digits, a unit, a dash for the unknown."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

GAP = "\u202f"
UNKNOWN = "–"

Shown = Callable[[float | None], str]


def _fixed(value: float, digits: int) -> str:
    return str(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def _three(value: float) -> str:
    return _fixed(value, 2 if value < 9.995 else 1 if value < 99.95 else 0)


def count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{int(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP)):,}"


def amount(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value < 999.5:
        return _fixed(value, 0)
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if value / size < 999.5:
            return f"{_three(value / size)}{GAP}{unit}"
    raise AssertionError(f"{value} is more than any test has")


def percent(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{_fixed(value * 100, 1).replace('100.0', '100')}{GAP}%"


def seconds(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if value <= 0:
        return f"0{GAP}s"
    for unit, size, end in (("µs", 1e6, 0.9995e-3), ("ms", 1e3, 0.9995), ("s", 1, 99.95)):
        if value < end:
            return f"{_three(value * size)}{GAP}{unit}"
    whole = int(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP))
    assert whole < 3600, f"{value} is longer than any test"
    return f"{whole // 60}{GAP}min" + (f" {whole % 60}{GAP}s" if whole % 60 else "")


TOTALS: dict[str, Shown] = {
    "hit_ratio": percent,
    "predicted_ratio": percent,
    "prompt_tokens": amount,
    "reported_prompt_tokens": amount,
    "engine_cached_tokens": amount,
    "predicted_cached_tokens": amount,
    "lost_tokens": amount,
    "saved_prefill_s": seconds,
    "requests": count,
    "failed": count,
}
"""All that the API tells of one window of the fleet, a model or a replica."""


def is_shown(figure: list[str] | tuple[str, str], value: float | None, shown: Shown) -> bool:
    """Tell whether a figure has this value, exactly in its attribute and as people read it in its text."""
    exact, text = figure
    return text == shown(value) and (exact == "" if value is None else float(exact) == value)
