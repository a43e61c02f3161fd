"""What a touch would save and lose, and whether its replica has time for it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Generic, NamedTuple

from router.core.fleet import Fleet
from router.core.recent import RECENT_S, Recent
from router.core.replica import Replica
from router.core.touching.profit import Profit
from router.core.touching.shelf import Body, Kept
from router.core.types import ReplicaId

NEAR_RATIO = 0.15
"""Part of the time that blocks stay, before its end, in which a session may be touched: later is better, since it may
still come back by itself, but a replica is not idle at every moment."""

UTILISED_RATIO = 0.6
"""Above this share of recent time spent on prefill a replica has no slack: a moment without work is a short one."""

FIRST_TOUCH_S = 0.03
"""What a touch is taken for before one was measured: a step of an engine, and the way there."""

MEASURED_SHARE = 0.2
"""Weight of the last touch in what the next one is expected to take."""

TAIL_S = 60.0
"""Time constant of the mean chance of what is at the end of the line: some tens of sessions."""

MARGIN = 1.5
"""How many times what is pushed out counts: whose chance is above the mean by luck is taken for better than it is."""

SAME_MS = 50
"""How much later than the session itself its blocks may be stamped: the mirror never uses a stamp twice."""

MOST_WORK_S = 3600.0
"""Prefill that a touch stands behind, if it waits in the router: all of it."""


class Offer(NamedTuple, Generic[Body]):
    """A touch that may be made, in seconds of prefill."""

    kept: Kept[Body]
    saved_s: float
    """Expected, by the chance that the session comes back only when it would be gone."""
    lost_s: float
    """Expected, by the chance that what its blocks push out would have been used."""
    gain_s: float
    """Both as they have come true of late, and the touch's own time taken off."""


class Pace:
    """What is known of one replica's touches, and of what it evicts."""

    __slots__ = ("seen_s", "tail_chance", "touch_s", "work")

    def __init__(self) -> None:
        self.work = Recent()
        self.touch_s = FIRST_TOUCH_S
        self.tail_chance = 0.0
        self.seen_s = float("-inf")

    def saw(self, tail_chance: float, now: float) -> None:
        """Take in the chance of what is evicted next."""
        share = min(1.0, (now - self.seen_s) / TAIL_S)
        self.tail_chance += (tail_chance - self.tail_chance) * share
        self.seen_s = now

    def took(self, seconds: float, now: float) -> None:
        """Take in what a touch took."""
        self.work.add(seconds, now)
        self.touch_s += (seconds - self.touch_s) * MEASURED_SHARE


class Offers:
    """Compares the sessions of a replica that are about to be evicted."""

    def __init__(self, fleet: Fleet, profit: Profit, budget_ratio: float) -> None:
        """`budget_ratio`: most of a replica's time that touches may take, above 0."""
        self._fleet, self._profit, self._budget_ratio = fleet, profit, budget_ratio
        self._paces: dict[ReplicaId, Pace] = {}

    def best(self, replica: Replica, sessions: Iterable[Kept[Body]], age_s: float, now: float) -> Offer[Body] | None:
        """Return what a touch is worth most for now, None for nothing.

        `sessions`: least recently used first; `age_s`: how long blocks stay that nobody uses.
        """
        pace = self.pace(replica)
        pace.saw(replica.tail_chance(now), now)
        if self._profit.resting(now) or not self._has_slack(replica, pace, now):
            return None
        from_s = now - age_s * (1 - NEAR_RATIO)
        near = takewhile(lambda kept: kept.used_s <= from_s, sessions)
        offers = [self._offer(kept, age_s, pace, now) for kept in near]
        best = max(offers, key=_gain_s, default=None)
        return best if best is not None and best.gain_s > 0 else None

    def pace(self, replica: Replica) -> Pace:
        """Return what is known of a replica's touches."""
        return self._paces.setdefault(replica.replica_id, Pace())

    def forget(self, replica_id: ReplicaId) -> None:
        """Drop what is known of a replica that left."""
        self._paces.pop(replica_id, None)

    def _has_slack(self, replica: Replica, pace: Pace, now: float) -> bool:
        if not replica.health.up or replica.report.asleep:
            return False
        if replica.ledger.pending or replica.queue_s(now) > 0 or replica.held_s(MOST_WORK_S) > 0:
            return False
        if replica.recent.work_s(now) > UTILISED_RATIO * RECENT_S:
            return False
        return pace.work.work_s(now) + pace.touch_s <= self._budget_ratio * RECENT_S

    def _offer(self, kept: Kept[Body], age_s: float, pace: Pace, now: float) -> Offer[Body]:
        """Return what a touch now would save and lose on average. Renewed blocks stay for `age_s` from now on."""
        chance, idle_s, profit = self._fleet.returns.chance, now - kept.ended_s, self._profit
        found_anyway = chance(kept.kind, idle_s, max(0.0, kept.used_s + age_s - now))
        won = chance(kept.kind, idle_s, age_s) - found_anyway
        if won <= found_anyway or not resident(self._fleet[kept.replica], kept):
            return Offer(kept, 0.0, 0.0, 0.0)
        own_s = self._own_s(kept)
        saved_s, lost_s = own_s * won, own_s * pace.tail_chance
        gain_s = saved_s * profit.savings.ratio - lost_s * profit.losses.ratio * MARGIN - pace.touch_s
        return Offer(kept, saved_s, lost_s, gain_s)

    def _own_s(self, kept: Kept[Body]) -> float:
        """Return what it takes to compute again what is the session's own: others keep what they share with it."""
        replica = self._fleet[kept.replica]
        shared = replica.mirror.used_since(kept.hashes, int(kept.used_s * 1000) + SAME_MS)
        if not shared:
            return kept.prefill_s
        shared_tokens = int(kept.prompt_tokens * kept.ends_bytes[shared - 1] / kept.ends_bytes[-1])
        return replica.prefill.seconds(kept.prompt_tokens - shared_tokens, shared_tokens)


def _gain_s(offer: Offer[Body]) -> float:
    return offer.gain_s


def resident(replica: Replica, kept: Kept[Body]) -> bool:
    """Tell whether a replica is believed to hold all of a session's last prompt."""
    return replica.mirror.match(kept.hashes) == len(kept.hashes)
