"""Numbers and words as people read them in a narrow column: two or three figures and a unit."""

from __future__ import annotations

import time

UNKNOWN = "–"
"""Stands where nobody has said."""


def tokens(number: float) -> str:
    """Return a count of tokens: 950, 1.5k, 23k, 1.2M."""
    if number < 1_000:
        return f"{number:.0f}"
    for limit, divisor, unit in ((999_500, 1e3, "k"), (999.5e6, 1e6, "M")):
        if number < limit:
            return _figures(number / divisor) + unit
    return _figures(number / 1e9) + "G"


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with what it counts: 1 request, 1,204 requests."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(ratio: float | None) -> str:
    """Return a share of 1 as percent, with one decimal."""
    return UNKNOWN if ratio is None else f"{ratio * 100:.1f}%"


def whole_percent(ratio: float | None) -> str:
    """Return a share of 1 as whole percent; what is above nothing and below one is not shown as nothing."""
    if ratio is None:
        return UNKNOWN
    return "<1%" if 0 < ratio < 0.005 else f"{ratio * 100:.0f}%"


def seconds(duration_s: float | None) -> str:
    """Return a time: 0.8ms, 210ms, 1.4s, 95s, 12m31s, 3h12m, 2d04h."""
    if duration_s is None:
        return UNKNOWN
    if duration_s < 0.9995:
        return f"{_figures(duration_s * 1e3)}ms" if duration_s > 0 else "0s"
    if duration_s < 99.5:
        return f"{_figures(duration_s)}s"
    if duration_s < 3_600:
        return _parts(duration_s, "m", 60, "s", 1)
    if duration_s < 86_400:
        return _parts(duration_s, "h", 3_600, "m", 60)
    return _parts(duration_s, "d", 86_400, "h", 3_600)


def clock(unix_s: float) -> str:
    """Return the time of day here."""
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


def plain(text: str) -> str:
    """Return a text without what a terminal would obey: model names come from clients."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in text)


def _figures(number: float) -> str:
    return f"{number:.1f}" if number < 9.95 else f"{number:.0f}"


def _parts(duration_s: float, large: str, large_s: int, small: str, small_s: int) -> str:
    whole, rest_s = divmod(int(duration_s), large_s)
    return f"{whole}{large}{rest_s // small_s:02}{small}"
