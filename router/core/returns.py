"""The chance that a session comes back, by class, learnt as sessions do or do not."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import exp, inf, isfinite, log

from router.core.curves import BINS, CLASSES, EDGES_S, Curve, ReturnClass, published_hazards

PRIOR_SESSIONS = 5.0
"""Sessions that the published curve is worth in each bin: it speaks until a handful were seen, and where nobody is."""

HALF_LIFE_S = 28_800.0
"""Eight hours, in which what was seen loses half of its weight: twice the longest idle time that is looked at, and
short enough that Monday's office is not judged by Sunday's."""

MAX_FOLLOWED = 32_768
"""Sessions whose idle time is followed at once, in some 8 MB. Ends beyond that are not counted, whoever's they are:
that makes the sample smaller, not different."""

SWEEP_S = 1.0
"""Idle times are counted so often at the most: what is learnt may come late by that."""

_MOST_GROWTH = 50.0
"""Natural logarithm of the largest weight before all are scaled down: far from what overflows."""

_DECAY_PER_S = log(2) / HALF_LIFE_S


class _Followed:
    __slots__ = ("away_s", "counts", "ended_s", "session")

    def __init__(self, session: int, counts: _Counts, ended_s: float) -> None:
        self.session = session
        self.counts = counts
        self.ended_s = ended_s
        self.away_s: float | None = inf
        """How long it stayed away; None: what became of it is not known, and it counts no more."""


class _Counts:
    """One class: for each bin, who began it and who came back in it, by weight."""

    __slots__ = ("back", "began", "curve", "stale")

    def __init__(self, kind: ReturnClass) -> None:
        self.began = [0.0] * BINS
        self.back = [0.0] * BINS
        self.curve = Curve(published_hazards(kind))
        self.stale = False

    def scale(self, ratio: float) -> None:
        self.began = [weight * ratio for weight in self.began]
        self.back = [weight * ratio for weight in self.back]


class Returns:
    """Learns return times by Kaplan-Meier's estimate with forward decay, in bounded memory. Single-threaded.

    In each bin of idle time those who came back are divided by those who were still away at its begin. A session counts
    in a bin when the bin has passed for it, whether it came back or not: so who is still away, and who is followed no
    more, takes nothing away and adds nothing. Forward decay: Cormode, Shkapenyuk, Srivastava, Xu, ICDE 2009.
    """

    def __init__(self) -> None:
        self._counts = {kind: _Counts(kind) for kind in CLASSES}
        self._hazards = {kind: published_hazards(kind) for kind in CLASSES}
        self._lines: list[deque[_Followed]] = [deque() for _ in range(BINS)]
        """Who is in which bin of idle time, in the order in which they leave it."""
        self._away: dict[int, _Followed] = {}
        self._followed = 0
        self._landmark_s: float | None = None
        self._swept_s = -inf

    def ended(self, session: int, kind: ReturnClass, now: float) -> None:
        """Note the end of a turn of `session`. One that ended already and is not back is followed no more."""
        now = self._sweep(now)
        before = self._away.pop(session, None)
        if before is not None:
            before.away_s = None
        if self._followed < MAX_FOLLOWED:
            self._followed += 1
            followed = self._away[session] = _Followed(session, self._counts[kind], now)
            self._lines[0].append(followed)

    def came_back(self, session: int, now: float) -> None:
        """Note the next turn of `session`; one that is not known teaches nothing."""
        now = self._sweep(now)
        followed = self._away.pop(session, None)
        if followed is not None:
            followed.away_s = now - followed.ended_s

    def chance(self, kind: ReturnClass, idle_s: float, within_s: float) -> float:
        """Return the chance, 0 to 1, that a session is back within the next `within_s`, after `idle_s` of idleness.

        Either may be 0 or more, `within_s` also infinite; after `LAST_S` of idleness it is 0.
        """
        return self._curve(kind).chance(idle_s, within_s)

    def horizon_s(self, kind: ReturnClass, least_chance: float) -> float:
        """Return the idle time, 0 to `LAST_S`, from which on the chance of any return is below `least_chance`."""
        return self._curve(kind).horizon_s(least_chance)

    def curve(self, kind: ReturnClass) -> list[tuple[float, float]]:
        """Return idle seconds and the share of sessions that is back by then, 0 to 1, for each edge of the bins."""
        return self._curve(kind).points

    def seen(self, kind: ReturnClass) -> float:
        """Return how many ends of the class, by their present weight, the curve is made of."""
        return self._counts[kind].began[0] / self._weight(self._swept_s)

    @property
    def followed(self) -> int:
        """Sessions whose idle time is followed, at most `MAX_FOLLOWED`."""
        return self._followed

    @property
    def away(self) -> int:
        """Those of them that are not back."""
        return len(self._away)

    def _curve(self, kind: ReturnClass) -> Curve:
        counts = self._counts[kind]
        if counts.stale:
            prior = PRIOR_SESSIONS * self._weight(self._swept_s)
            rows = zip(counts.back, counts.began, self._hazards[kind], strict=True)
            counts.curve = Curve([(back + prior * hazard) / (began + prior) for back, began, hazard in rows])
            counts.stale = False
        return counts.curve

    def _sweep(self, now: float) -> float:
        """Count those who left a bin by `now`; return `now`, or the last one's where that was later."""
        if now < self._swept_s + SWEEP_S:
            return max(now, self._swept_s)
        self._swept_s = now
        if self._landmark_s is None:
            self._landmark_s = now
        if (now - self._landmark_s) * _DECAY_PER_S > _MOST_GROWTH:
            self._rebase(self._landmark_s, now)
        for at in range(BINS):
            self._pass_bin(at, now)
        return now

    def _pass_bin(self, at: int, now: float) -> None:
        """Count sessions in a bin that they have passed. Each passes a dozen: so no call for each."""
        line, end_s, landmark_s = self._lines[at], EDGES_S[at + 1], self._landmark_s or 0.0
        after = self._lines[at + 1] if at + 1 < BINS else None
        while line and line[0].ended_s + end_s <= now:
            followed = line.popleft()
            away_s, counts = followed.away_s, followed.counts
            if away_s is not None:
                weight = exp((followed.ended_s + end_s - landmark_s) * _DECAY_PER_S)
                counts.began[at] += weight
                counts.stale = True
                if away_s >= end_s and after is not None:
                    after.append(followed)
                    continue
                if away_s < end_s:
                    counts.back[at] += weight
            self._followed -= 1
            self._give_up(followed)

    def _give_up(self, followed: _Followed) -> None:
        if self._away.get(followed.session) is followed:
            del self._away[followed.session]

    def _weight(self, at_s: float) -> float:
        return 1.0 if self._landmark_s is None else exp((at_s - self._landmark_s) * _DECAY_PER_S)

    def _rebase(self, landmark_s: float, now: float) -> None:
        ratio = exp((landmark_s - now) * _DECAY_PER_S)
        self._landmark_s = now
        for counts in self._counts.values():
            counts.scale(ratio)

    @property
    def state(self) -> tuple[float, ...]:
        """What was learnt, as `resume` takes it. Who is away is not in it: that takes nothing from the estimate."""
        ratio = 1 / self._weight(self._swept_s)
        rows = [(*counts.began, *counts.back) for counts in self._counts.values()]
        return tuple(weight * ratio for row in rows for weight in row)

    def resume(self, state: Sequence[float]) -> None:
        """Go on from another's `state`, as if its clock had stood still since. ValueError: it is none."""
        width = 2 * BINS
        if len(state) != width * len(CLASSES) or not all(isfinite(weight) and weight >= 0 for weight in state):
            raise ValueError("not the state of return times")
        for at, counts in enumerate(self._counts.values()):
            row = state[at * width : (at + 1) * width]
            counts.began = list(row[:BINS])
            # Never more than began: a hazard above 1 has no logarithm.
            counts.back = list(map(min, row[BINS:], row[:BINS]))
            counts.stale = True
        self._landmark_s = None if self._swept_s == -inf else self._swept_s
