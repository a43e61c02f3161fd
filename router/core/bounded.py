"""A map with a limit."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")

LINK_BYTES = 240
"""Memory of one entry in the worst moment, just after the table grew: ordered-dict node, table slots, key and value
integers (64-bit CPython 3.11 to 3.14; tests/core/test_bounded.py holds it against tracemalloc)."""


class BoundedMap(Generic[V]):
    """A map from 64-bit hashes that forgets the least recently used entry above `limit` entries."""

    __slots__ = ("_items", "limit")

    def __init__(self, limit: int) -> None:
        self._items: OrderedDict[int, V] = OrderedDict()
        self.limit = limit

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: int) -> V | None:
        """Return the value and count it as used; None when there is none."""
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: int, value: V) -> None:
        """Store a value; forget the oldest above the limit."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self.limit:
            self._items.popitem(last=False)

    def last_known(self, keys: list[int], count: int) -> int:
        """Return the position, counted from 1, of the last of the first `count` keys that is stored; 0 for none."""
        items = self._items
        for position in range(count, 0, -1):
            if keys[position - 1] in items:
                return position
        return 0
