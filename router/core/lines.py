"""The lines that requests wait in, whose turn it is, and what is ahead of one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from router.core.shares import Shares
from router.core.waiting import WEIGHTS, Owner, Priority, Rank, Waiting

LEAST_WORK_S = 0.01
"""A request costs its engine this much at the least, cached to the last token or not: a step or two."""


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


def _first_rank(line: Line) -> Rank:
    return line.first_rank
