"""A request that waits in the router: whose it is, what for, and when it is due."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from router.core.types import ReplicaId, RoutingRequest

DUE_S = 40.0
"""Seconds after its arrival at which a request of usual work is due; half the work, half the time. What is due first
goes first, so short work does, and the longest does not wait for ever. In proportion to the usual work, since chats' is
a thirtieth of coding agents': 0.3 s of work for a second of waiting, right for those, was order of arrival for chats
(4.5/s, 4 replicas: TTFT p95 35 s; with 20 here 13 s, with 30 10 s, with 40 8 s). More delays the long ones where most
are long: agents 34 s with 30, 37 s with 45, where the spread of seeds is as much."""


class Priority(IntEnum):
    """How urgent a request is."""

    INTERACTIVE = 0
    """Somebody waits for the answer."""
    BATCH = 1
    """Nobody does."""


WEIGHTS = {Priority.INTERACTIVE: 10.0, Priority.BATCH: 1.0}
"""Shares of the work while both wait: interactive requests hardly notice batch, and batch never stands still."""


class Place(NamedTuple):
    """What a request waits for: one replica, or any that serves its model."""

    replica: ReplicaId | None
    model: str


class Owner(NamedTuple):
    """Whose requests share a line."""

    priority: Priority
    tenant: int


Rank = tuple[float, int]
"""When it is due; then order of arrival."""


class Waiting:
    """A request that waits. What it costs and where it should go may change meanwhile."""

    __slots__ = ("body_bytes", "in_line", "number", "owner", "pace", "place", "request", "since_s", "work_s")

    def __init__(self, number: int, request: RoutingRequest, owner: Owner, now: float, pace: float = DUE_S) -> None:
        self.number = number
        """Grows from request to request."""
        self.request = request
        self.owner = owner
        self.body_bytes = request.body_bytes
        self.since_s = now
        self.pace = pace
        """Seconds until it is due for each second of its work; see `Queue.pace`."""
        self.work_s = 0.0
        """Prefill seconds at the replica that it should go to."""
        self.place = Place(None, request.model)
        self.in_line = False

    @property
    def rank(self) -> Rank:
        """Its order in its line, lowest first."""
        return self.rank_with(self.work_s)

    def rank_with(self, work_s: float) -> Rank:
        """Return what its rank would be with so much work."""
        return self.since_s + work_s * self.pace, self.number
