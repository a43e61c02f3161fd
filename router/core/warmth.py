"""Which shared prefixes are hottest: decayed counts of a bounded number of them, with the text of the hottest few."""

from __future__ import annotations

from math import exp
from typing import NamedTuple

from router.core.types import RoutingRequest

COUNTED = 64
"""Prefixes that are counted. Whatever has more than 1/64 of the requests is among them (Metwally et al., Efficient
Computation of Frequent and Top-k Elements in Data Streams, 2005: Space-Saving)."""

KEPT = 16
"""Prefixes whose text is kept: at most 16 MiB, and more than most applications have system prompts."""

FADING_S = 600.0
"""Time constant of the counts: a prefix that nobody has sent for half an hour counts for 5 % of what it did."""

WANTED_FROM = 2
"""Requests from which a prefix's text is kept: one that is seen once is shared by nobody."""

COLDER_RATIO = 0.67
"""Of a newcomer's count: what has less gives up its text to it. Two of about the same heat would take turns for ever,
and each turn is a body read once more."""

REBASE_S = 50 * FADING_S
"""After this the counts are scaled down: they grow by e in each `FADING_S`, and a float ends at e^709."""


class Opening(NamedTuple):
    """What warms a replica for all requests that begin alike."""

    path: str
    body: bytes
    """A whole request that begins as they do, and asks for one token."""
    request: RoutingRequest
    """The same, as routing reads it."""

    @property
    def model(self) -> str:
        """The model that it is for."""
        return self.request.model


class _Count:
    __slots__ = ("inherited", "refused", "seen")

    def __init__(self, inherited: float) -> None:
        self.inherited = inherited
        """Of its weight, what the one had whose place it took; the rest is surely its own."""
        self.seen = 0
        self.refused = False
        """Its text can't be kept."""


class Warmth:
    """Counts prefixes by key: the hash of a prompt's last block before its first message of a user."""

    def __init__(self) -> None:
        self._weights: dict[int, float] = {}
        self._counts: dict[int, _Count] = {}
        """The same keys as `_weights`, which stand apart to be searched fast."""
        self._kept: dict[int, Opening] = {}
        self._origin_s: float | None = None
        """When one request counted for 1; later ones count for more, which is as if earlier ones faded."""

    def __len__(self) -> int:
        return len(self._weights)

    def __contains__(self, key: int) -> bool:
        return key in self._weights

    def seen(self, key: int, now: float) -> bool:
        """Count a request that begins with this prefix; return whether `keep` should be told its text."""
        worth = self._worth(now)
        count = self._counts.get(key)
        if count is None:
            count = self._begin(key)
        self._weights[key] += worth
        count.seen += 1
        if key in self._kept or count.refused or count.seen < WANTED_FROM:
            return False
        return len(self._kept) < KEPT or self._colder_than(key) is not None

    def keep(self, key: int, opening: Opening | None) -> None:
        """Keep a prefix's text, in place of a colder one's where there are `KEPT`. None: it has none that would do."""
        count = self._counts.get(key)
        if count is None:
            return
        if opening is None:
            count.refused = True
            return
        if len(self._kept) >= KEPT:
            colder = self._colder_than(key)
            if colder is None:
                return
            del self._kept[colder]
        self._kept[key] = opening

    def hottest(self) -> list[Opening]:
        """Return the kept prefixes, hottest first."""
        return [self._kept[key] for key in sorted(self._kept, key=self._own, reverse=True)]

    def _own(self, key: int) -> float:
        return self._weights[key] - self._counts[key].inherited

    def _worth(self, now: float) -> float:
        """Return what a request counts for now (Cormode et al., Forward Decay, 2009: exponential)."""
        if self._origin_s is None:
            self._origin_s = now
        if now - self._origin_s > REBASE_S:
            self._rebase(exp((self._origin_s - now) / FADING_S))
            self._origin_s = now
        return exp((now - self._origin_s) / FADING_S)

    def _rebase(self, fading: float) -> None:
        for key, count in self._counts.items():
            self._weights[key] *= fading
            count.inherited *= fading

    def _begin(self, key: int) -> _Count:
        inherited = 0.0
        if len(self._weights) >= COUNTED:
            coldest = min(self._weights, key=self._weights.__getitem__)
            inherited = self._weights.pop(coldest)
            del self._counts[coldest]
            self._kept.pop(coldest, None)
        self._weights[key] = inherited
        count = self._counts[key] = _Count(inherited)
        return count

    def _colder_than(self, key: int) -> int | None:
        """Return the coldest kept prefix if its text should make room for this one's."""
        coldest = min(self._kept, key=self._own)
        return coldest if self._own(coldest) < self._own(key) * COLDER_RATIO else None
