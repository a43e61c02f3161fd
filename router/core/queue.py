"""Requests that wait in the router: who is next. Fair between priorities and tenants, short work first within each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from router.core.types import ReplicaId, RoutingRequest

AGEING = 0.3
"""Seconds of work that a second of waiting makes up for. Coding agents, overloaded: short work first without ageing let
the longest wait for ever, in order of arrival everybody waits for them."""

LEAST_WORK_S = 0.01
"""A request costs its engine this much at the least, cached to the last token or not: a step or two."""

K = TypeVar("K")


class Priority(IntEnum):
    """How urgent a request is."""

    INTERACTIVE = 0
    """Somebody waits for the answer."""
    BATCH = 1
    """Nobody does."""


WEIGHTS = {Priority.INTERACTIVE: 10.0, Priority.BATCH: 1.0}
"""Shares of the work while both wait: interactive requests hardly notice batch, and batch never stands still."""


class Place(NamedTuple):
    """What a request waits for: one replica that holds its history, or any that serves its model."""

    replica: ReplicaId | None
    model: str


class Waiting:
    """A request that waits. What it costs and where it should go may change meanwhile."""

    __slots__ = ("body_bytes", "number", "place", "priority", "request", "serial", "since_s", "tenant", "work_s")

    def __init__(
        self, number: int, request: RoutingRequest, priority: Priority, tenant: int, body_bytes: int, now: float
    ) -> None:
        self.number = number
        self.request = request
        self.priority = priority
        self.tenant = tenant
        self.body_bytes = body_bytes
        self.since_s = now
        self.work_s = 0.0
        """Prefill seconds at the replica that it should go to."""
        self.place = Place(None, request.model)
        self.serial = 0
        """Which of its entries in the lines counts: the last one, until it is taken or gone."""

    @property
    def rank(self) -> float:
        """Work less the credit for waiting, but for a term that is the same for all at any moment: lowest first."""
        return self.work_s + AGEING * self.since_s


class Shares(Generic[K]):
    """Who has had how much: weighted fair queueing by virtual time.

    Whoever has had the least of its share is next; one that has been away does not bring along what it did not use.
    """

    def __init__(self) -> None:
        self._virtual_s: dict[K, float] = {}
        self._members: dict[K, int] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._members

    def enter(self, key: K) -> None:
        """One more waits for `key`."""
        if key not in self._members:
            self._virtual_s[key] = min(self._virtual_s.values(), default=0.0)
            self._members[key] = 0
        self._members[key] += 1

    def leave(self, key: K) -> None:
        """One less waits."""
        self._members[key] -= 1
        if not self._members[key]:
            del self._members[key], self._virtual_s[key]

    def charge(self, key: K, work: float) -> None:
        """Count work done for `key`, by its weight."""
        if key in self._virtual_s:
            self._virtual_s[key] += work

    def had(self, key: K) -> float:
        """Return what `key` has had, comparable with others'."""
        return self._virtual_s[key]


Entry = tuple[float, int, int, Waiting]
"""Rank, number and serial of a request, and itself."""

Rank = tuple[float, float, float, int]


class Queue:
    """All requests that wait."""

    def __init__(self) -> None:
        self._lines: dict[Place, dict[tuple[Priority, int], list[Entry]]] = {}
        self._priorities: Shares[Priority] = Shares()
        self._tenants: Shares[tuple[Priority, int]] = Shares()
        self._all: dict[int, Waiting] = {}
        self.bytes = 0
        """Size of the bodies that wait."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Waiting]:
        """In order of arrival."""
        return iter(self._all.values())

    def count(self, priority: Priority) -> int:
        """Return how many of a priority wait."""
        return sum(waiting.priority is priority for waiting in self)

    def put(self, waiting: Waiting, place: Place, work_s: float) -> None:
        """Let a request wait for `place`; also one that has been passed over and may have another place now."""
        if waiting.number not in self._all:
            self._all[waiting.number] = waiting
            self.bytes += waiting.body_bytes
            self._priorities.enter(waiting.priority)
            self._tenants.enter((waiting.priority, waiting.tenant))
        waiting.place, waiting.work_s = place, work_s
        line = self._lines.setdefault(place, {}).setdefault((waiting.priority, waiting.tenant), [])
        waiting.serial += 1
        heappush(line, (waiting.rank, waiting.number, waiting.serial, waiting))

    def leave(self, waiting: Waiting, sent: bool) -> None:
        """Let a request go; `sent`: it is charged to its tenant's share. A second call does nothing."""
        if self._all.pop(waiting.number, None) is None:
            return
        waiting.serial += 1
        self.bytes -= waiting.body_bytes
        key = waiting.priority, waiting.tenant
        if sent:
            work_s = max(waiting.work_s, LEAST_WORK_S)
            self._priorities.charge(waiting.priority, work_s / WEIGHTS[waiting.priority])
            self._tenants.charge(key, work_s)
        self._priorities.leave(waiting.priority)
        self._tenants.leave(key)

    def take_next(self, places: Iterable[Place]) -> Waiting | None:
        """Return the next one of those that wait for one of `places`, out of its line; it is still in the queue.

        Whoever takes it calls `leave` when it is sent, or `put` to let it wait on.
        """
        best: tuple[Rank, list[Entry]] | None = None
        for place in places:
            for key, line in self._heads(place):
                rank = (self._priorities.had(key[0]), self._tenants.had(key), line[0][0], line[0][1])
                if best is None or rank < best[0]:
                    best = rank, line
        if best is None:
            return None
        waiting = heappop(best[1])[3]
        waiting.serial += 1
        return waiting

    @property
    def places(self) -> list[Place]:
        """What is waited for."""
        return list(self._lines)

    def _heads(self, place: Place) -> Iterator[tuple[tuple[Priority, int], list[Entry]]]:
        """Give the lines of a place that have somebody in them; forget those that have not."""
        lines = self._lines.get(place)
        if lines is None:
            return
        for key, line in list(lines.items()):
            while line and line[0][2] != line[0][3].serial:
                heappop(line)
            if line:
                yield key, line
            else:
                del lines[key]
        if not lines:
            del self._lines[place]

    def ahead_s(self, waiting: Waiting) -> float:
        """Return the work of those that will most likely be sent before one, in prefill seconds of one replica.

        Of its own priority those of lower rank; of the other priority, what its share lets pass meanwhile.
        """
        mine = others = 0.0
        for other in self:
            if other is waiting or other.place.model != waiting.place.model:
                continue
            if other.priority is not waiting.priority:
                others += other.work_s
            elif (other.rank, other.number) < (waiting.rank, waiting.number):
                mine += other.work_s
        own_weight = WEIGHTS[waiting.priority]
        passing_ratio = (sum(WEIGHTS.values()) - own_weight) / own_weight
        return mine + min(others, (mine + waiting.work_s) * passing_ratio)
