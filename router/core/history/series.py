"""Names for counts: a series has up to `FIELDS` numbers, and each of them one integer as its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

FIELDS = 128
"""Keys of one series. The largest series are histograms, with 106 buckets."""


class Name(NamedTuple):
    """What a series counts."""

    kind: str
    """Such as `model` or `reason`."""
    of: str = ""
    """Which model or which reason; empty where there is one only."""


class Series:
    """Gives every series its keys. They are never given again, so counts of a forgotten series go to nobody."""

    def __init__(self) -> None:
        self._firsts: dict[Name, int] = {}
        self._next = 0

    def __iter__(self) -> Iterator[tuple[Name, int]]:
        return iter(self._firsts.items())

    def first(self, name: Name) -> int:
        """Return the key of a series' first field; a new series gets one."""
        first = self._firsts.get(name)
        if first is None:
            first = self._firsts[name] = self._next
            self._next += FIELDS
        return first

    def find(self, name: Name) -> int | None:
        """Return the key of a series' first field; None where there is no such series."""
        return self._firsts.get(name)

    def kind(self, kind: str) -> dict[str, int]:
        """Return all series of a kind: what each is of, and the key of its first field."""
        return {name.of: first for name, first in self._firsts.items() if name.kind == kind}

    def forget(self, name: Name) -> None:
        """Forget a series; if it comes again it begins at nothing."""
        self._firsts.pop(name, None)

    def forget_all_but(self, keys: Iterable[int], kinds: frozenset[str]) -> None:
        """Forget the series of some kinds that have none of these keys."""
        used = {key // FIELDS for key in keys}
        for name, first in list(self._firsts.items()):
            if name.kind in kinds and first // FIELDS not in used:
                del self._firsts[name]

    def resume(self, firsts: Iterable[tuple[str, str, int]]) -> None:
        """Go on from another's names: (kind, of, first key). Raises ValueError for keys that can't be."""
        for kind, of, first in firsts:
            if first < 0 or first % FIELDS or first > MAX_FIRST:
                raise ValueError(f"no first key: {first}")
            self._firsts[Name(kind, of)] = first
            self._next = max(self._next, first + FIELDS)
        if len(set(self._firsts.values())) != len(self._firsts):
            raise ValueError("two series with one key")


MAX_FIRST = (1 << 31) - FIELDS
"""Keys are kept in 32 bits; at a new series every second that is half a year's, and a file beyond it is not used."""
