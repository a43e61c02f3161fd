"""Requests that wait in the router: who is next. Fair between priorities and tenants, short work first within each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from router.core.lines import LEAST_WORK_S, Account, Ahead, Lines
from router.core.types import ReplicaId
from router.core.waiting import DUE_S, WEIGHTS, Owner, Place, Priority, Waiting

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


def _ahead_s(waiting: Waiting, found: list[Lines], own_s: float) -> float:
    ahead = Ahead(waiting, own_s)
    for lines in found:
        ahead.add(lines)
    return ahead.total_s
