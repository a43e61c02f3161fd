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
    __slots__ = ("inherited", "opening", "refused", "seen", "weight")

    def __init__(self, inherited: float) -> None:
        self.weight = self.inherited = inherited
        """`inherited`: what the one had whose place it took; so much of its weight may not be its own."""
        self.seen = 0
        self.opening: Opening | None = None
        self.refused = False
        """Its text can't be kept."""

    @property
    def own(self) -> float:
        """What is surely its own."""
        return self.weight - self.inherited


class Warmth:
    """Counts prefixes by key: the hash of a prompt's last block before its first message of a user."""

    def __init__(self) -> None:
        self._counts: dict[int, _Count] = {}
        self._origin_s: float | None = None
        """When one request counted for 1; later ones count for more, which is as if earlier ones faded."""

    def __len__(self) -> int:
        return len(self._counts)

    def seen(self, key: int, now: float) -> bool:
        """Count a request that begins with this prefix; return whether `keep` should be told its text."""
        worth = self._worth(now)
        count = self._counts.get(key)
        if count is None:
            count = self._begin(key)
        count.weight += worth
        count.seen += 1
        if count.opening is not None or count.refused or count.seen < WANTED_FROM:
            return False
        return self._coldest_kept(count) is not count

    def keep(self, key: int, opening: Opening | None) -> None:
        """Keep a prefix's text, in place of a colder one's where there are `KEPT`. None: it has none that would do."""
        count = self._counts.get(key)
        if count is None:
            return
        if opening is None:
            count.refused = True
            return
        coldest = self._coldest_kept(count)
        if coldest is count:
            return
        if coldest is not None:
            coldest.opening = None
        count.opening = opening

    def hottest(self) -> list[Opening]:
        """Return the kept prefixes, hottest first."""
        kept = [count for count in self._counts.values() if count.opening is not None]
        kept.sort(key=lambda count: count.own, reverse=True)
        return [count.opening for count in kept if count.opening is not None]

    def _worth(self, now: float) -> float:
        """Return what a request counts for now (Cormode et al., Forward Decay, 2009: exponential)."""
        if self._origin_s is None:
            self._origin_s = now
        if now - self._origin_s > REBASE_S:
            fading = exp((self._origin_s - now) / FADING_S)
            for count in self._counts.values():
                count.weight *= fading
                count.inherited *= fading
            self._origin_s = now
        return exp((now - self._origin_s) / FADING_S)

    def _begin(self, key: int) -> _Count:
        inherited = 0.0
        if len(self._counts) >= COUNTED:
            coldest = min(self._counts, key=lambda known: self._counts[known].weight)
            inherited = self._counts.pop(coldest).weight
        count = self._counts[key] = _Count(inherited)
        return count

    def _coldest_kept(self, newcomer: _Count) -> _Count | None:
        """Return whose text makes room for the newcomer's: None where there is room, itself where nobody's does."""
        kept = [count for count in self._counts.values() if count.opening is not None]
        if len(kept) < KEPT:
            return None
        coldest = min(kept, key=lambda count: count.own)
        return coldest if coldest.own < newcomer.own * COLDER_RATIO else newcomer
