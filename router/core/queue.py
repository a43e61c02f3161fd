"""Requests that wait in the router: who is next. Fair between priorities and tenants, short work first within each."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from router.core.shares import Shares
from router.core.types import ReplicaId, RoutingRequest

DUE_S = 40.0
"""Seconds after its arrival at which a request of usual work is due; half the work, half the time. What is due first
goes first, so short work does, and the longest does not wait for ever. In proportion to the usual work, since chats' is
a thirtieth of coding agents': 0.3 s of work for a second of waiting, right for those, was order of arrival for chats
(4.5/s, 4 replicas: TTFT p95 35 s; with 20 here 13 s, with 30 10 s, with 40 8 s). More delays the long ones of a workload
of long ones: agents 34 s with 30, 37 s with 45, where the spread of seeds is as much."""

PRIOR_WORK_S = 1.0
"""What usual work is taken for at the start."""

LEARNT_RATIO = 0.02
"""Weight of each new request in the usual work: about the last 50 speak."""

CHANGE_RATIO = 1.2
"""How much the usual work has to change before those that come are ranked by it: with each small change, the later of
two equal requests would go first, or wait for longer."""

TURN_WORKS = 3.0
"""Tenants that have had as much but for so many requests of usual work take turns by their requests' order: exact turns
would send the next one's only request, however long, before a short one (20 tenants, Mooncake conversation, where this
is 5 s: TTFT p95 44 s with exact turns, 34 with these)."""

LEAST_WORK_S = 0.01
"""A request costs its engine this much at the least, cached to the last token or not: a step or two."""


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


class Line:
    """Those of one owner that wait for one place, lowest rank first."""

    __slots__ = ("_ranks", "_waiting", "_works_s", "bytes", "work_s")

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._waiting: list[Waiting] = []
        self._works_s: list[float] = []
        self.bytes = 0
        self.work_s = 0.0

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def first(self) -> Waiting:
        """The next one."""
        return self._waiting[0]

    @property
    def first_rank(self) -> Rank:
        """That one's."""
        return self._ranks[0]

    @property
    def last(self) -> Waiting:
        """The one whose turn comes last."""
        return self._waiting[-1]

    def add(self, waiting: Waiting) -> None:
        """Put one in its order."""
        rank = waiting.rank
        at = bisect_left(self._ranks, rank)
        self._ranks.insert(at, rank)
        self._waiting.insert(at, waiting)
        self._works_s.insert(at, waiting.work_s)
        self.work_s += waiting.work_s
        self.bytes += waiting.body_bytes

    def remove(self, waiting: Waiting) -> None:
        """Take one out that is in it."""
        at = bisect_left(self._ranks, waiting.rank)
        del self._ranks[at], self._waiting[at], self._works_s[at]
        self.work_s -= waiting.work_s
        self.bytes -= waiting.body_bytes

    def before_s(self, rank: Rank) -> float:
        """Return the work of those below a rank."""
        return sum(self._works_s[: bisect_left(self._ranks, rank)])


class Lines(dict[Owner, Line]):
    """The lines at one place, and what they come to: no decision is to add up a thousand tenants."""

    def __init__(self) -> None:
        super().__init__()
        self.work_s = dict.fromkeys(Priority, 0.0)
        self.tenants = dict.fromkeys(Priority, 0)

    def add(self, waiting: Waiting) -> None:
        """Put one into its owner's line."""
        priority = waiting.owner.priority
        line = self.get(waiting.owner)
        if line is None:
            line = self[waiting.owner] = Line()
            self.tenants[priority] += 1
        line.add(waiting)
        self.work_s[priority] += waiting.work_s

    def remove(self, waiting: Waiting) -> None:
        """Take one out of its owner's line."""
        priority, line = waiting.owner.priority, self[waiting.owner]
        line.remove(waiting)
        self.work_s[priority] -= waiting.work_s
        if not line:
            del self[waiting.owner]
            self.tenants[priority] -= 1


class Account:
    """What one replica's work went to."""

    __slots__ = ("_priorities", "_tenants")

    def __init__(self) -> None:
        self._priorities: Shares[Priority] = Shares()
        self._tenants: dict[Priority, Shares[int]] = {priority: Shares() for priority in Priority}

    def next_of(self, lines: Iterable[tuple[Owner, Line]], turn_s: float) -> Line | None:
        """Return the line whose turn it is: its priority, then its tenant has had least, then by rank.

        Tenants that have had as much but for `turn_s` are equal.
        """
        found = list(lines)
        waiting = {owner.priority for owner, _ in found}
        if not waiting:
            return None
        least_s = self._priorities.least_s(waiting)
        turn = min(priority for priority in waiting if self._priorities.had_s(priority) <= least_s)
        of_turn = [(owner.tenant, line) for owner, line in found if owner.priority is turn]
        tenants = self._tenants[turn]
        limit_s = tenants.least_s(tenant for tenant, _ in of_turn) + turn_s
        return min((line for tenant, line in of_turn if tenants.had_s(tenant) <= limit_s), key=_first_rank)

    def charge(self, owner: Owner, work_s: float) -> None:
        """Count a request that was sent."""
        priority, tenant = owner
        work_s = max(work_s, LEAST_WORK_S)
        self._priorities.charge(priority, work_s / WEIGHTS[priority])
        self._tenants[priority].charge(tenant, work_s)


class Ahead:
    """The work ahead of one: of its own line those of lower rank, of others' what their share lets pass meanwhile."""

    __slots__ = ("_mine_s", "_other_priority_s", "_others_s", "_own_s", "_rank", "_tenants", "_waiting")

    def __init__(self, waiting: Waiting, own_s: float) -> None:
        """`own_s`: its own work, by which its rank is told."""
        self._waiting = waiting
        self._own_s = own_s
        self._rank = waiting.rank_with(own_s)
        self._mine_s = 0.0
        self._others_s = 0.0
        self._tenants = 0
        self._other_priority_s = 0.0

    def add(self, lines: Lines, ratio: float = 1.0) -> None:
        """Count those who wait for one place; `ratio` of their work is in the way."""
        owner = self._waiting.owner
        others_s, tenants = lines.work_s[owner.priority], lines.tenants[owner.priority]
        line = lines.get(owner)
        if line is not None:
            self._mine_s += ratio * line.before_s(self._rank)
            others_s, tenants = others_s - line.work_s, tenants - 1
        self._others_s += ratio * others_s
        self._tenants = max(self._tenants, tenants)
        self._other_priority_s += ratio * lines.work_s[Priority(1 - owner.priority)]

    @property
    def total_s(self) -> float:
        """The sum: each other tenant gets as much done meanwhile as this one, the other priority its share."""
        limit_s = self._mine_s + self._own_s
        same_s = self._mine_s + min(self._others_s, self._tenants * limit_s)
        weight = WEIGHTS[self._waiting.owner.priority]
        passing_ratio = (sum(WEIGHTS.values()) - weight) / weight
        return same_s + min(self._other_priority_s, (same_s + self._own_s) * passing_ratio)


class Queue:
    """All requests that wait.

    Shares are of each replica's work, so models that share none do not wait for each other.
    """

    def __init__(self) -> None:
        self._lines: dict[Place, Lines] = {}
        self._all: dict[int, Waiting] = {}
        self._accounts: defaultdict[ReplicaId, Account] = defaultdict(Account)
        self.bytes = 0
        """Size of the bodies that wait."""
        self._usual_work_s = self._basis_s = PRIOR_WORK_S
        self._learnt = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Waiting]:
        """In order of arrival."""
        return iter(self._all.values())

    @property
    def pace(self) -> float:
        """What `Waiting` is to be made with: `DUE_S` over the usual work of those that had to wait."""
        return DUE_S / self._basis_s

    def _learn(self, work_s: float) -> None:
        self._learnt += 1
        weight = max(LEARNT_RATIO, 1.0 / self._learnt)
        self._usual_work_s += weight * (max(work_s, LEAST_WORK_S) - self._usual_work_s)
        if not self._basis_s / CHANGE_RATIO < self._usual_work_s < self._basis_s * CHANGE_RATIO:
            self._basis_s = self._usual_work_s

    def count(self, priority: Priority) -> int:
        """Return how many of a priority wait."""
        return sum(waiting.owner.priority is priority for waiting in self)

    @property
    def places(self) -> list[Place]:
        """What is waited for."""
        return list(self._lines)

    def put(self, waiting: Waiting, place: Place, work_s: float) -> None:
        """Let a request wait for `place`; also one that waits already and may have another place now."""
        if waiting.number not in self._all:
            self._all[waiting.number] = waiting
            self.bytes += waiting.body_bytes
            self._learn(work_s)
        self.take(waiting)
        waiting.place, waiting.work_s, waiting.in_line = place, work_s, True
        lines = self._lines.get(place)
        if lines is None:
            lines = self._lines[place] = Lines()
        lines.add(waiting)

    def leave(self, waiting: Waiting, sent_to: ReplicaId | None = None) -> None:
        """Let a request go; sent to a replica, it is charged to its owner's share there. A second call does nothing."""
        if self._all.pop(waiting.number, None) is None:
            return
        self.take(waiting)
        self.bytes -= waiting.body_bytes
        if not self._all:
            self._accounts.clear()  # nobody waits, so nobody has had too much
        elif sent_to is not None:
            self._accounts[sent_to].charge(waiting.owner, waiting.work_s)

    def take_next(self, replica: ReplicaId, places: Iterable[Place]) -> Waiting | None:
        """Return whose turn it is of those that wait for one of `places`, out of its line; it is still in the queue.

        Whoever takes it calls `leave` when it is sent, or `put` to let it wait on.
        """
        found = [self._lines[place] for place in places if place in self._lines]
        lines = (one for at_place in found for one in at_place.items())
        line = self._accounts[replica].next_of(lines, TURN_WORKS * self._basis_s)
        if line is None:
            return None
        waiting = line.first
        self.take(waiting)
        return waiting

    def take(self, waiting: Waiting) -> None:
        """Take a request out of its line; see `take_next`."""
        if not waiting.in_line:
            return
        waiting.in_line = False
        lines = self._lines[waiting.place]
        lines.remove(waiting)
        if not lines:
            del self._lines[waiting.place]

    def ahead_s(self, waiting: Waiting, share: Callable[[Place], float]) -> float:
        """Return the work of those that will most likely be sent before one, which is in the queue or not.

        `share`: how much of the work that waits for a place is in its way, 0 to 1.
        """
        ahead = Ahead(waiting, waiting.work_s)
        for place, lines in self._lines.items():
            ratio = share(place)
            if ratio:
                ahead.add(lines, ratio)
        return ahead.total_s

    def ahead_by_replica(self, waiting: Waiting) -> dict[ReplicaId, Callable[[float], float]]:
        """Return, for each replica that others wait for, how the work that goes there before one depends on its own."""
        lines: defaultdict[ReplicaId, list[Lines]] = defaultdict(list)
        for place, owners in self._lines.items():
            if place.replica is not None:
                lines[place.replica].append(owners)
        return {replica: partial(_ahead_s, waiting, found) for replica, found in lines.items()}

    def rather_than(self, newcomer: Waiting, by_bytes: bool) -> Waiting | None:
        """Return who should rather go than a newcomer that is in the queue already, where there is no room for both.

        The last one of the owner that has most in the queue for its weight: who floods does not keep others out.
        """
        sizes: defaultdict[Owner, float] = defaultdict(float)
        for lines in self._lines.values():
            for owner, line in lines.items():
                sizes[owner] += (line.bytes if by_bytes else len(line)) / WEIGHTS[owner.priority]
        most = max(sizes, key=sizes.__getitem__)
        if sizes[most] <= sizes[newcomer.owner]:
            return None
        return max((lines[most].last for lines in self._lines.values() if most in lines), key=lambda one: one.rank)


def _first_rank(line: Line) -> Rank:
    return line.first_rank


def _ahead_s(waiting: Waiting, found: list[Lines], own_s: float) -> float:
    ahead = Ahead(waiting, own_s)
    for lines in found:
        ahead.add(lines)
    return ahead.total_s
