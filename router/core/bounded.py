"""A map with a limit."""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")

LINK_BYTES = 180
"""Memory of one entry in the worst moment, just after the table grew: table slots, key and value integers (64-bit
CPython 3.11 to 3.14; tests/core/test_bounded.py holds it against tracemalloc)."""


class BoundedMap(Generic[V]):
    """A map from 64-bit hashes that keeps the `limit` / 2 last used entries at least, and `limit` at the most.

    Entries live in two plain dicts, young and old. When the young one is half of the limit, the old one is dropped and
    the young one takes its place; what is used moves to the young one. An ordered dict would be exact, twice as large,
    and in the garbage collector's way.
    """

    __slots__ = ("_old", "_young", "limit")

    def __init__(self, limit: int) -> None:
        self._young: dict[int, V] = {}
        self._old: dict[int, V] = {}
        self.limit = max(2, limit)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, key: int) -> bool:
        return key in self._young or key in self._old

    def get(self, key: int) -> V | None:
        """Return the value and count it as used; None when there is none."""
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: int, value: V) -> None:
        """Store a value; forget the old ones when there are too many."""
        self._old.pop(key, None)
        self._young[key] = value
        if len(self._young) >= self.limit // 2:
            self._old, self._young = self._young, {}

    def halves(self) -> tuple[dict[int, V], dict[int, V]]:
        """Return the entries in order of use, in the live dicts they are in, older ones first: to be read only."""
        return self._old, self._young

    def last_known(self, keys: list[int], count: int) -> int:
        """Return the position, counted from 1, of the last of the first `count` keys that is stored; 0 for none."""
        young, old = self._young, self._old
        for position in range(count, 0, -1):
            key = keys[position - 1]
            if key in young or key in old:
                return position
        return 0
