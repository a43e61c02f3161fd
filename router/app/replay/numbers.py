"""Numbers as they are typed: 200k, 1.25M, lists of them."""

from __future__ import annotations

from math import isfinite

from router.app.settings.sources import ConfigError

_SUFFIXES = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def number(text: str, flag: str) -> float:
    """Read a number above 0; k, M and G behind it stand for 10^3, 10^6 and 10^9. ConfigError names `flag`."""
    given = text.strip()
    factor = _SUFFIXES.get(given[-1:], 0)
    try:
        found = float(given[:-1] if factor else given) * (factor or 1)
    except ValueError:
        found = float("nan")
    if not isfinite(found) or found <= 0:
        raise ConfigError(f"{flag}: {text!r} is no number above 0, such as 8, 1.5, 200k or 1.25M")
    return found


def count(text: str, flag: str) -> int:
    """Read a whole number of at least 1."""
    found = number(text, flag)
    if found != int(found):
        raise ConfigError(f"{flag}: {text!r} is no whole number")
    return int(found)


def counts(text: str, flag: str) -> tuple[int, ...]:
    """Read whole numbers with commas between."""
    return tuple(count(part, flag) for part in text.split(","))


def numbers(text: str, flag: str) -> tuple[float, ...]:
    """Read numbers with commas between."""
    return tuple(number(part, flag) for part in text.split(","))
