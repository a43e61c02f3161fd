"""Which idle session is to be touched now: a one-token request with its last body renews its blocks.

vLLM evicts what was used longest ago. A touch moves a session's blocks from the end of that line to its beginning, and
all others a little towards the end: it is worth its price where the session is likelier to come back than what is at
the end of the line is on average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple

from router.core.curves import CLASS_INDEX, ReturnClass
from router.core.fleet import Fleet
from router.core.leases import Lease
from router.core.replica import Replica
from router.core.returning import class_of, goes_on_from
from router.core.ticket import Settlement, Ticket
from router.core.touching.offers import Offer, Offers, resident
from router.core.touching.profit import Profit
from router.core.touching.shadows import Shadows
from router.core.touching.shelf import Body, Kept, Shelf
from router.core.types import Prompt, ReplicaId, Usage

LEAST_PREFILL_S = 0.1
"""Sessions that are computed faster are not worth a request: a touch takes 0.01 to 0.03 s, and one in some comes
back."""

LEAST_CHANCE = 0.02
"""Chance of any return below which a session is given up."""

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


class _Sent(NamedTuple, Generic[Body]):
    lease: Lease | None
    """Of the shadow's."""
    body: Body | None
    body_bytes: int


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
        self._keep_bytes = keep_bytes
        self.offers = Offers(fleet, self.profit, budget_ratio)
        self._shadows = Shadows(shadow_bytes)
        self._sent: dict[int, _Sent[Body]] = {}
        self._sent_bytes = 0
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
        if replica.replica_id in self.under_way:
            return None
        return self.offers.best(replica, self.shelf.on(replica.replica_id), age_s, now)

    def _give_up(self, replica: Replica, age_s: float | None, now: float) -> None:
        used_from_s = float("-inf") if age_s is None else now - age_s
        gone = [
            kept.session
            for kept in self.shelf.on(replica.replica_id)
            if now > kept.expires_s or (kept.used_s < used_from_s and not resident(replica, kept))
        ]
        for session in gone:
            if replica.replica_id not in self.under_way or self.under_way[replica.replica_id].kept.session != session:
                self.shelf.pop(session)

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
        if self.under_way.get(kept.replica) is touch:
            del self.under_way[kept.replica]
        if served and usage.cached_tokens is not None and usage.cached_tokens * 2 < kept.prompt_tokens:
            self._fleet.index.evict_unused_since(replica.mirror, touch.lease.stale_stamp)
        self._fleet.index.release(replica.mirror, touch.lease, now, served, 0, CLASS_INDEX[kept.kind])
        took_s = now - touch.began_s
        if self._fleet.get(kept.replica) is replica:
            self.offers.pace(replica).took(took_s, now)
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
        self.under_way.pop(replica_id, None)
        self.shelf.forget(replica_id)
        self._shadows.forget(replica_id)
        self.offers.forget(replica_id)


def _saved_s(ticket: Ticket, more: int, fewer: int) -> float:
    """Return how much faster a prompt is computed with `more` blocks cached than with `fewer`."""
    scale, replica = ticket.scale, ticket.replica
    if scale is None:
        return 0.0

    def left_s(blocks: int) -> float:
        cached = scale.cached_tokens(blocks, replica.block_tokens, answer_resident=False)
        return replica.prefill.seconds(scale.total - cached, cached)

    return max(0.0, left_s(fewer) - left_s(more))
