"""Which idle session is to be touched now: a one-token request with its last body renews its blocks.

vLLM evicts what was used longest ago. A touch moves a session's blocks from the end of that line to its beginning, and
all others a little towards the end: it is worth its price where the session is likelier to come back than what is at
the end of the line is on average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, NamedTuple

from router.core.curves import CLASS_INDEX, ReturnClass
from router.core.fleet import Fleet
from router.core.leases import Lease
from router.core.recent import RECENT_S, Recent
from router.core.replica import Replica
from router.core.returning import class_of, goes_on_from
from router.core.ticket import Settlement, Ticket
from router.core.touching.profit import Profit
from router.core.touching.shadows import Shadows
from router.core.touching.shelf import Body, Kept, Shelf
from router.core.types import Prompt, ReplicaId, Usage

LEAST_PREFILL_S = 0.1
"""Sessions that are computed faster are not worth a request: a touch takes 0.01 to 0.03 s, and one in some comes
back."""

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

LEAST_CHANCE = 0.02
"""Chance of any return below which a session is given up."""

MARGIN = 1.5
"""How many times what is pushed out counts: whose chance is above the mean by luck is taken for better than it is."""

SAME_MS = 50
"""How much later than the session itself its blocks may be stamped: the mirror never uses a stamp twice."""

MOST_WORK_S = 3600.0
"""Prefill that a touch stands behind, if it waits in the router: all of it."""

MARKED_SESSIONS = 16_384
"""Touched sessions that are remembered, to see what becomes of them."""


@dataclass(slots=True, eq=False)
class Touch(Generic[Body]):
    """A touch under way."""

    kept: Kept[Body]
    replica: Replica
    lease: Lease
    began_s: float
    interrupted: bool = False


class Offer(NamedTuple, Generic[Body]):
    """A touch that may be made, in seconds of prefill."""

    kept: Kept[Body]
    saved_s: float
    """Expected, by the chance that the session comes back only when it would be gone."""
    lost_s: float
    """Expected, by the chance that what its blocks push out would have been used."""
    gain_s: float
    """Both as they have come true of late, and the touch's own time taken off."""


class _Sent(NamedTuple, Generic[Body]):
    lease: Lease | None
    """Of the shadow's."""
    body: Body | None
    body_bytes: int


class _Pace:
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


def _ignored(touch: object, now: float) -> None:
    """Nobody can end it sooner."""


class Touching(Generic[Body]):
    """Keeps what touches are made from, says when one is due, and keeps their account. Single-threaded."""

    def __init__(self, fleet: Fleet, keep_bytes: int, budget_ratio: float, shadow_bytes: int) -> None:
        """`keep_bytes`: memory for sessions' bodies; `budget_ratio`: most of a replica's time that touches may take.

        `shadow_bytes`: memory for what replicas would hold without them, as `Fleet`'s `index_bytes`.
        """
        self.profit = Profit()
        self.shelf: Shelf[Body] = Shelf()
        self.interrupt: Callable[[Touch[Body], float], None] = _ignored
        """Is told of a touch whose replica has got work: it is to be ended at once."""
        self.under_way: dict[ReplicaId, Touch[Body]] = {}
        self._fleet = fleet
        self._keep_bytes, self._budget_ratio = keep_bytes, budget_ratio
        self._shadows = Shadows(shadow_bytes)
        self._sent: dict[int, _Sent[Body]] = {}
        self._sent_bytes = 0
        self._paces: dict[ReplicaId, _Pace] = {}
        self._marked: dict[int, None] = {}

    @property
    def kept_bytes(self) -> int:
        """Memory of what touches may be made from: of idle sessions, and of those whose turn is under way."""
        return self.shelf.size_bytes + self._sent_bytes

    # Clients' requests

    def sent(self, ticket: Ticket, body: Body | None, body_bytes: int, now: float) -> None:
        """Take note of a request that is being sent: its session is back, and its replica has work.

        `body`: None where no touch can be made from it. Sent once more with the same ticket it is no news.
        """
        touch = self.under_way.get(ticket.replica.replica_id)
        if touch is not None and not touch.interrupted:
            touch.interrupted = True
            self.interrupt(touch, now)
        prompt = ticket.request.prompt
        if prompt is None or ticket.lease is None or ticket.number in self._sent:
            return
        self._account(ticket, prompt, ticket.lease, now)
        lease = self._shadows.hold(ticket.replica, prompt)
        wanted = body is not None and self._wanted(ticket, body_bytes)
        self._sent[ticket.number] = _Sent(lease, body if wanted else None, body_bytes if wanted else 0)
        self._sent_bytes += body_bytes if wanted else 0
        self.shelf.shrink(self._keep_bytes - self._sent_bytes)

    def _wanted(self, ticket: Ticket, body_bytes: int) -> bool:
        if self._sent_bytes + body_bytes > self._keep_bytes:
            return False
        return ticket.replica.prefill.seconds(ticket.decision.prompt_tokens) >= LEAST_PREFILL_S

    def _account(self, ticket: Ticket, prompt: Prompt, lease: Lease, now: float) -> None:
        back = {prompt.hashes[-1], goes_on_from(prompt, self._fleet.index.turns)}
        touched = [session for session in back if session in self._marked]
        for session in back:
            if session is not None:
                self.shelf.pop(session)
        for session in touched:
            del self._marked[session]
        if not self.profit.spent_s:
            return  # nothing was touched yet
        others = [replica for replica in self._fleet if replica is not ticket.replica]
        real = max([lease.fresh_from, *(replica.mirror.match(prompt.hashes) for replica in others)])
        without = max(self._shadows.of(replica).match(prompt.hashes) for replica in self._fleet)
        if without > real:
            self.profit.lost(_saved_s(ticket, without, real), now)
        elif lease.fresh_from > without and touched:
            self.profit.saved(_saved_s(ticket, lease.fresh_from, without), now)

    def settled(self, ticket: Ticket, settlement: Settlement, usage: Usage, now: float) -> None:
        """Take note of the end of a request; its session is kept if that may be worth a touch."""
        sent = self._sent.pop(ticket.number, None)
        if sent is None:
            return
        self._sent_bytes -= sent.body_bytes
        kind = class_of(ticket, usage)
        replica = ticket.replica
        if self._fleet.get(replica.replica_id) is not replica:
            return
        if settlement.overestimated and ticket.lease is not None and ticket.lease.stale_stamp >= 0:
            self._shadows.evict_unused_since(replica, ticket.lease.stale_stamp)
        if sent.lease is not None:
            self._shadows.release(
                replica, sent.lease, now, settlement.computed, settlement.answer_bytes, CLASS_INDEX[kind]
            )
        if settlement.served and ticket.request.prompt is not None:
            self._keep(replica, ticket.request.prompt, settlement.prompt_tokens, sent, kind, now)

    def _keep(
        self, replica: Replica, prompt: Prompt, prompt_tokens: int, sent: _Sent[Body], kind: ReturnClass, now: float
    ) -> None:
        if sent.body is None:
            return
        returns = self._fleet.returns
        prefill_s = replica.prefill.seconds(prompt_tokens)
        kept = Kept(
            session=prompt.hashes[-1],
            replica=replica.replica_id,
            hashes=prompt.hashes,
            ends_bytes=prompt.ends_bytes,
            kind=kind,
            ended_s=now,
            prompt_tokens=prompt_tokens,
            prefill_s=prefill_s,
            worth_s=prefill_s * returns.chance(kind, 0.0, float("inf")),
            expires_s=now + returns.horizon_s(kind, LEAST_CHANCE),
            body=sent.body,
            body_bytes=sent.body_bytes,
            used_s=now,
        )
        self.shelf.put(kept, self._keep_bytes - self._sent_bytes)

    # Touches

    def due(self, replica: Replica, now: float) -> Offer[Body] | None:
        """Return the touch of a replica's sessions that is worth most now, None for none.

        To be asked about once a second; what can't come back, or is gone, is given up meanwhile.
        """
        age_s = replica.mirror.eviction_age_s(now)
        self._give_up(replica, age_s, now)
        if age_s is None:
            return None
        pace = self._pace(replica)
        pace.saw(replica.tail_chance(now), now)
        if self.profit.resting(now) or not self._has_slack(replica, pace, now):
            return None
        from_s = now - age_s * (1 - NEAR_RATIO)
        near = takewhile(lambda kept: kept.used_s <= from_s, self.shelf.on(replica.replica_id))
        offers = [self._offer(kept, age_s, pace, now) for kept in near]
        best = max(offers, key=_gain_s, default=None)
        return best if best is not None and best.gain_s > 0 else None

    def _give_up(self, replica: Replica, age_s: float | None, now: float) -> None:
        used_from_s = float("-inf") if age_s is None else now - age_s
        gone = [
            kept.session
            for kept in self.shelf.on(replica.replica_id)
            if now > kept.expires_s or (kept.used_s < used_from_s and not _resident(replica, kept))
        ]
        for session in gone:
            if replica.replica_id not in self.under_way or self.under_way[replica.replica_id].kept.session != session:
                self.shelf.pop(session)

    def _has_slack(self, replica: Replica, pace: _Pace, now: float) -> bool:
        if replica.replica_id in self.under_way or not replica.health.up or replica.report.asleep:
            return False
        if replica.ledger.pending or replica.queue_s(now) > 0 or replica.held_s(MOST_WORK_S) > 0:
            return False
        if replica.recent.work_s(now) > UTILISED_RATIO * RECENT_S:
            return False
        return pace.work.work_s(now) + pace.touch_s <= self._budget_ratio * RECENT_S

    def _offer(self, kept: Kept[Body], age_s: float, pace: _Pace, now: float) -> Offer[Body]:
        """Return what a touch now would save and lose on average. Renewed blocks stay for `age_s` from now on."""
        chance, idle_s, profit = self._fleet.returns.chance, now - kept.ended_s, self.profit
        found_anyway = chance(kept.kind, idle_s, max(0.0, kept.used_s + age_s - now))
        won = chance(kept.kind, idle_s, age_s) - found_anyway
        if won <= found_anyway or not _resident(self._fleet[kept.replica], kept):
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

    def _pace(self, replica: Replica) -> _Pace:
        return self._paces.setdefault(replica.replica_id, _Pace())

    def begin(self, offer: Offer[Body], now: float) -> Touch[Body] | None:
        """Begin a touch; None where the index has no room, or the replica has left."""
        kept = offer.kept
        replica = self._fleet.get(kept.replica)
        if replica is None or kept.replica in self.under_way:
            return None
        self._shadows.of(replica)  # as it is before the first touch
        lease = self._fleet.index.hold(replica.mirror, Prompt(kept.hashes, kept.ends_bytes, [], None))
        if lease is None:
            return None
        self.profit.expected(offer.saved_s, offer.lost_s, now)
        touch = self.under_way[kept.replica] = Touch(kept, replica, lease, now)
        return touch

    def end(self, touch: Touch[Body], now: float, served: bool, keep: bool, usage: Usage = Usage()) -> None:  # noqa: B008 - frozen
        """Count a touch out. `served`: it was answered; `keep`: its session may be touched again."""
        kept, replica = touch.kept, touch.replica
        del self.under_way[kept.replica]
        if served and usage.cached_tokens is not None and usage.cached_tokens * 2 < kept.prompt_tokens:
            self._fleet.index.evict_unused_since(replica.mirror, touch.lease.stale_stamp)
        self._fleet.index.release(replica.mirror, touch.lease, now, served, 0, CLASS_INDEX[kept.kind])
        pace = self._pace(replica)
        took_s = now - touch.began_s
        pace.took(took_s, now)
        self.profit.spent(took_s, now)
        self.shelf.used(kept, now)
        if not keep:
            self.shelf.pop(kept.session)
        if served:
            kept.touches += 1
            self._mark(kept.session)

    def _mark(self, session: int) -> None:
        self._marked.pop(session, None)
        self._marked[session] = None
        if len(self._marked) > MARKED_SESSIONS:
            del self._marked[next(iter(self._marked))]

    def forget(self, replica_id: ReplicaId) -> None:
        """Drop what is known of a replica that left."""
        self.shelf.forget(replica_id)
        self._shadows.forget(replica_id)
        self._paces.pop(replica_id, None)


def _gain_s(offer: Offer[Body]) -> float:
    return offer.gain_s


def _resident(replica: Replica, kept: Kept[Body]) -> bool:
    return replica.mirror.match(kept.hashes) == len(kept.hashes)


def _saved_s(ticket: Ticket, more: int, fewer: int) -> float:
    """Return how much faster a prompt is computed with `more` blocks cached than with `fewer`."""
    scale, replica = ticket.scale, ticket.replica
    if scale is None:
        return 0.0

    def left_s(blocks: int) -> float:
        cached = scale.cached_tokens(blocks, replica.block_tokens, answer_resident=False)
        return replica.prefill.seconds(scale.total - cached, cached)

    return max(0.0, left_s(fewer) - left_s(more))
