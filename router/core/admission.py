"""Holding requests: a replica that has enough ahead gets no more, so that what comes later can still go first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from router.core.fleet import Fleet
from router.core.queue import Place, Priority, Queue, Waiting
from router.core.replica import Replica
from router.core.ticket import Ticket
from router.core.types import Decision, NoReplicaError, ReplicaId, RoutingRequest, UnknownModelError

TRIES = 4
"""Requests that are decided anew each time a replica has room: at some 100 microseconds each, more would hold up
streams."""

RETRIES = 32
"""Requests that are decided anew at each `reconsider`, the oldest first: it may have become cheaper to go elsewhere."""


@dataclass(slots=True)
class Rules:
    """Limits of the queue. May change while it runs."""

    depth_s: float = 1.0
    """Seconds of prefill that a replica has ahead from which on requests wait; 0 holds nothing."""
    max_wait_s: float = 60.0
    max_requests: int = 4096
    max_bytes: int = 256 << 20


class QueueFullError(Exception):
    """The request would wait for too long, or there is no room for it; `wait_s` is the predicted wait."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"{wait_s:.1f} s")
        self.wait_s = wait_s


class Admission:
    """The queue in front of a fleet. Single-threaded; times in monotonic seconds."""

    def __init__(self, fleet: Fleet, rules: Rules) -> None:
        self._fleet = fleet
        self.rules = rules
        self.queue = Queue()
        self._sequence = 0

    def route(self, request: RoutingRequest, tenant: int, now: float) -> Ticket | Waiting:
        """Route a request, or let it wait.

        Raises as `Fleet.route`, and QueueFullError.
        """
        depth_s = self.rules.depth_s
        if not depth_s:
            return self._fleet.route(request, now)
        found = self._fleet.route_within(request, now, depth_s)
        return found if isinstance(found, Ticket) else self._hold(request, tenant, found, now)

    def _hold(self, request: RoutingRequest, tenant: int, decision: Decision, now: float) -> Waiting:
        self._sequence += 1
        priority = Priority.BATCH if request.batch else Priority.INTERACTIVE
        waiting = Waiting(self._sequence, request, priority, tenant, request.body_bytes, now)
        rules, queue = self.rules, self.queue
        queue.put(waiting, *_place(request, decision))
        wait_s = self.predicted_wait_s(waiting, now)
        if wait_s > rules.max_wait_s or len(queue) > rules.max_requests or queue.bytes > rules.max_bytes:
            queue.leave(waiting, sent=False)
            raise QueueFullError(wait_s)
        return waiting

    def predicted_wait_s(self, waiting: Waiting, now: float) -> float:
        """Predict how long a request in the queue will still wait.

        Work ahead of it, spread over the replicas that serve its model, and what the one it waits for has ahead beyond
        the depth. Speeds are learnt under load, so what slows engines down (decoding, full memory) is in them.
        """
        servers = [replica for replica in self._fleet if replica.serves(waiting.place.model) and replica.health.up]
        count = max(1, len(servers))
        waits = [r.queue_s(now) for r in servers if waiting.place.replica in (None, r.replica_id)]
        own_s = max(0.0, min(waits, default=0.0) - self.rules.depth_s)
        return own_s + self.queue.ahead_s(waiting) / count

    def leave(self, waiting: Waiting) -> None:
        """Let a request go whose client has gone."""
        self.queue.leave(waiting, sent=False)

    def released(self, replica_id: ReplicaId, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Send what may be sent now that a replica may have room."""
        replica = self._fleet.get(replica_id)
        if replica is not None and self.queue:
            yield from self._fill(replica, now)

    def tick(self, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Send what may be sent: rooms open without an event when time passes, and when other routers are done."""
        for replica in list(self._fleet):
            if self.queue:
                yield from self._fill(replica, now)

    def reconsider(self, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Decide anew for those that wait longest: their replica may be gone, or another one cheaper by now."""
        for waiting in [waiting for _, waiting in zip(range(RETRIES), self.queue, strict=False)]:
            ticket = self._try(waiting, now)
            if ticket is None:
                self.queue.put(waiting, waiting.place, waiting.work_s)
            else:
                yield waiting, ticket

    def overdue(self, now: float) -> list[Waiting]:
        """Return those that have waited for as long as is allowed."""
        limit_s = now - self.rules.max_wait_s
        late: list[Waiting] = []
        for waiting in self.queue:
            if waiting.since_s > limit_s:
                break
            late.append(waiting)
        return late

    def _fill(self, replica: Replica, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        passed_over: list[Waiting] = []
        for _ in range(TRIES):
            if replica.queue_s(now) > self.rules.depth_s or not replica.health.available(now):
                break
            waiting = self.queue.take_next(self._places(replica))
            if waiting is None:
                break
            ticket = self._try(waiting, now)
            if ticket is None:
                passed_over.append(waiting)
            else:
                yield waiting, ticket
        for waiting in passed_over:
            self.queue.put(waiting, waiting.place, waiting.work_s)

    def _places(self, replica: Replica) -> list[Place]:
        return [place for place in self.queue.places if _is_for(place, replica)]

    def _try(self, waiting: Waiting, now: float) -> Ticket | None:
        """Send a request if the replica that it should go to now has room; otherwise let it wait for that one."""
        try:
            found = self._fleet.route_within(waiting.request, now, self.rules.depth_s)
        except (NoReplicaError, UnknownModelError):
            return None
        if isinstance(found, Decision):
            waiting.place, waiting.work_s = _place(waiting.request, found)
            return None
        self.queue.leave(waiting, sent=True)
        return found


def _is_for(place: Place, replica: Replica) -> bool:
    if place.replica is not None:
        return place.replica == replica.replica_id
    return replica.serves(place.model)


def _place(request: RoutingRequest, decision: Decision) -> tuple[Place, float]:
    """Return what a request waits for, and its work there, in seconds.

    One with a history there waits for that replica; a new one for whichever has room first.
    """
    score = next(score for score in decision.scores if score.replica == decision.replica)
    home = decision.replica if decision.home == decision.replica or request.stored is not None else None
    return Place(home, request.model), score.own_s
