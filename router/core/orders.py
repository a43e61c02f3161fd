"""What operators have ordered while the fleet runs: replicas to be taken in, and replicas to be drained.

Routers of one fleet hold the same orders. Of two orders about the same thing the later one holds, wherever it was
given, so that it does not matter in which way and how often they are passed on. An order that ends another one is kept
for a while: a router that was away must not bring back what was ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from router.core.types import ReplicaId

MAX_ORDERS = 1_000
"""A few hundred bytes each, which all routers read whenever one of them changes."""

KEEP_MS = 7 * 86_400_000
"""How long an order that is of no effect is kept: no router of a fleet is away for longer and comes back as it was."""

MAX_STAMP_MS = 1 << 53
"""The year 287396: a clock that is wrong is no reason to pass over an order, and the next one must have room."""

RENEW_MS = 86_400_000
"""An order in effect is renewed when it is so old."""

RENEWED_AGO_MS = 3_600_000
"""By how much a renewed order is older than now: an operator's order, which not all may have heard of, is later."""


class TooManyOrdersError(Exception):
    """There are `MAX_ORDERS` already."""


class Kind(StrEnum):
    """What an order is about."""

    REPLICA = "replica"
    """Take a replica in. Its name is the operator's."""
    DRAIN = "drain"
    """Send nothing new to a replica. Its name is the replica's id."""


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """A replica as an operator describes it."""

    url: str
    """Scheme, host and port, lower case, the port written out."""
    rank: int | None = None
    """Data-parallel rank within the engine at `url`."""
    models: tuple[str, ...] = ()
    weight: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()


class Order(msgspec.Struct, frozen=True, array_like=True):
    """The last word on one thing."""

    kind: Kind
    name: str
    stamp_ms: int
    """Unix time at which it was given; later than that of the order before it, whatever the clocks say."""
    holds: bool
    """False ends an earlier order."""
    listed: Listed | None = None
    """Of the kind `REPLICA` while it holds."""

    @property
    def about(self) -> About:
        """What it is about."""
        return self.kind, self.name

    @property
    def is_sound(self) -> bool:
        """Tell whether it can be one of ours: who has no secret may have written anything."""
        described = self.listed is not None
        return described == (self.holds and self.kind is Kind.REPLICA) and 0 <= self.stamp_ms < MAX_STAMP_MS

    def is_later_than(self, other: Order | None) -> bool:
        """Tell whether it replaces another one about the same thing. Of two of one moment all take the same."""
        if other is None or self.stamp_ms != other.stamp_ms:
            return other is None or self.stamp_ms > other.stamp_ms
        return _encode(self) > _encode(other)


About = tuple[Kind, str]

_encode = msgspec.msgpack.Encoder().encode


class Orders:
    """All orders, by what they are about. Times are Unix milliseconds, since routers compare them."""

    def __init__(self) -> None:
        self._orders: dict[About, Order] = {}

    def __len__(self) -> int:
        return len(self._orders)

    @property
    def all(self) -> dict[About, Order]:
        """A copy of what is ordered."""
        return dict(self._orders)

    def give(self, kind: Kind, name: str, holds: bool, now_ms: int, listed: Listed | None = None) -> None:
        """Order something, or end that order. Raises TooManyOrdersError."""
        before = self._orders.get((kind, name))
        if before is None and len(self._orders) >= MAX_ORDERS:
            raise TooManyOrdersError
        stamp_ms = now_ms if before is None else max(now_ms, before.stamp_ms + 1)
        self._orders[kind, name] = Order(kind, name, stamp_ms, holds, listed)

    def take(self, orders: Iterable[Order]) -> bool:
        """Take in what was ordered elsewhere, as far as it is later; return whether anything was."""
        changed = False
        for order in orders:
            if order.is_later_than(self._orders.get(order.about)):
                self._orders[order.about] = order
                changed = True
        return changed

    def tidy(self, now_ms: int, is_present: Callable[[ReplicaId], bool]) -> None:
        """Drop old orders that are of no effect, and renew old ones that are.

        `is_present` tells whether the fleet has a replica.
        """
        for about, order in list(self._orders.items()):
            age_ms = now_ms - order.stamp_ms
            in_effect = order.holds and (order.kind is Kind.REPLICA or is_present(order.name))
            if in_effect and age_ms > RENEW_MS:
                self._orders[about] = msgspec.structs.replace(order, stamp_ms=now_ms - RENEWED_AGO_MS)
            elif not in_effect and age_ms > KEEP_MS:
                del self._orders[about]

    # What holds

    def listed(self) -> dict[str, Listed]:
        """Return the replicas to be taken in, by name, in the order of their names."""
        orders = sorted((order for order in self._orders.values() if order.listed is not None), key=_name)
        return {order.name: order.listed for order in orders if order.listed is not None and order.holds}

    def drained(self, replica_id: ReplicaId) -> bool:
        """Tell whether a replica is to be drained."""
        order = self._orders.get((Kind.DRAIN, replica_id))
        return order is not None and order.holds


def _name(order: Order) -> str:
    return order.name
