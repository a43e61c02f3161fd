"""Holding requests: a replica that has enough ahead gets no more, so that what comes later can still go first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from router.core.fleet import Fleet
from router.core.health import State
from router.core.queue import Queue
from router.core.replica import Replica, nothing_held
from router.core.ticket import Ticket
from router.core.types import Decision, NoReplicaError, ReplicaId, RoutingRequest, UnknownModelError
from router.core.waiting import Owner, Place, Priority, Waiting

TICK_S = 0.02
"""How often the queue is looked at while somebody waits: room also opens when time passes and when other routers are
done. A fiftieth of the default depth."""

TRIES = 4
"""Requests that are decided anew each time a replica has room: at some 100 microseconds each, more would hold up
streams."""

RETRIES = 2
"""Requests that are decided anew at each `reconsider`, in turn: it may have become cheaper to go elsewhere. 100 a
second; with 64 replicas and 4,000 that wait one takes half a millisecond."""

MOVES = 16
"""Requests whose replica takes nothing any more that are decided anew at each `tick`: 800 a second."""

NO_ROOM_S = -1.0
"""A depth that every replica is above."""


@dataclass(slots=True)
class Rules:
    """Limits of the queue. May change while it runs."""

    depth_s: float = 1.0
    """Seconds of prefill that a replica has ahead from which on requests wait; 0 holds nothing."""
    max_wait_s: float = 60.0
    max_requests: int = 4096
    max_bytes: int = 256 << 20

    @property
    def room_s(self) -> float:
        """What a replica may have ahead and be sent one more."""
        return self.depth_s or float("inf")


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
        self._looked_at = 0
        self._displaced: list[Waiting] = []

    def route(self, request: RoutingRequest, tenant: int, now: float) -> Ticket | Waiting:
        """Route a request, or let it wait.

        Raises as `Fleet.route`, and QueueFullError.
        """
        depth_s = self.rules.depth_s
        if not depth_s:
            return self._fleet.route(request, now)
        found: Ticket | Decision | None = None
        if not self.queue:
            found = self._fleet.route_within(request, now, depth_s)
            if isinstance(found, Ticket):
                return found
        self._sequence += 1
        priority = Priority.BATCH if request.batch else Priority.INTERACTIVE
        newcomer = Waiting(self._sequence, request, Owner(priority, tenant), now, self.queue.pace)
        found = found or self._decide_behind_others(newcomer, now)
        if isinstance(found, Decision):
            self._hold(newcomer, found, now)
            return newcomer
        return found

    def _decide_behind_others(self, newcomer: Waiting, now: float) -> Ticket | Decision:
        """Decide on a newcomer: where somebody waits already for the room that there is, it waits too."""
        found = self._decide(newcomer, now, NO_ROOM_S)
        if isinstance(found, Ticket) or self._places(self._fleet[found.replica]):
            return found
        return self._decide(newcomer, now, self.rules.depth_s)

    def _decide(self, waiting: Waiting, now: float, room_s: float) -> Ticket | Decision:
        """Route a request within `room_s`. What waits before it for one replica is part of that replica's price.

        Without that a busy home would look as busy as its room allows, however many wait for it.
        """
        queued = self.queue.ahead_by_replica(waiting) if self.queue else {}
        fleet = self._fleet
        for replica_id, ahead_s in queued.items():
            if replica_id in fleet:
                fleet[replica_id].held_s = ahead_s
        try:
            return fleet.route_within(waiting.request, now, room_s)
        finally:
            for replica_id in queued:
                if replica_id in fleet:
                    fleet[replica_id].held_s = nothing_held

    def _hold(self, waiting: Waiting, decision: Decision, now: float) -> None:
        self.queue.put(waiting, *self._place(waiting.request, decision, now))
        wait_s = self.predicted_wait_s(waiting, now)
        if wait_s > self.rules.max_wait_s or not self._has_room_for(waiting):
            self.queue.leave(waiting)
            raise QueueFullError(wait_s)

    def _has_room_for(self, newcomer: Waiting) -> bool:
        """Tell whether it may stay, once others have gone that should rather go."""
        queue, rules = self.queue, self.rules
        displaced: list[Waiting] = []
        while len(queue) > rules.max_requests or queue.bytes > rules.max_bytes:
            other = queue.rather_than(newcomer, by_bytes=queue.bytes > rules.max_bytes)
            if other is None:
                break
            displaced.append(other)
            queue.leave(other)
        self._displaced += displaced
        return len(queue) <= rules.max_requests and queue.bytes <= rules.max_bytes

    def _place(self, request: RoutingRequest, decision: Decision, now: float) -> tuple[Place, float]:
        """Return what a request waits for, and its work there, in seconds.

        One with a history waits for the replica that was chosen by it, and so does one that prefers that to others with
        room; a new one for whichever has room first.
        """
        score = next(score for score in decision.scores if score.replica == decision.replica)
        bound = decision.home is not None or request.stored is not None
        bound = bound or any(self._fleet[s.replica].backlog_s(now) <= self.rules.room_s for s in decision.scores)
        return Place(decision.replica if bound else None, request.model), score.own_s

    def predicted_wait_s(self, waiting: Waiting, now: float) -> float:
        """Predict how long a request in the queue will still wait.

        The work ahead of it: of what waits for its replica all, of what waits for any its share; and what its replica
        has ahead beyond the depth. Speeds are learnt under load, so what slows engines down (decoding, full memory) is
        in them.
        """
        home, model = waiting.place
        servers = {r.replica_id: r for r in self._fleet if r.serves(model) and r.health.up}
        each = 1 / max(1, len(servers))

        def share(place: Place) -> float:
            if place.replica is None:
                return each if any(replica.serves(place.model) for replica in servers.values()) else 0.0
            if home is not None:
                return float(place.replica == home)
            return each if place.replica in servers else 0.0

        waits = [replica.backlog_s(now) for replica in servers.values() if home in (None, replica.replica_id)]
        return max(0.0, min(waits, default=0.0) - self.rules.depth_s) + self.queue.ahead_s(waiting, share)

    def leave(self, waiting: Waiting) -> None:
        """Let a request go whose client has gone, or has been told to go."""
        self.queue.leave(waiting)

    def released(self, replica_id: ReplicaId, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Send what may be sent now that a replica may have room."""
        replica = self._fleet.get(replica_id)
        if replica is not None and self.queue:
            yield from self._fill(replica, now)

    def tick(self, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Send what may be sent: rooms open without an event when time passes, and when other routers are done."""
        waited_for = {place.replica for place in self.queue.places}
        for replica in list(self._fleet):
            if self.queue and (None in waited_for or replica.replica_id in waited_for):
                yield from self._fill(replica, now)
        for place in self.queue.places:
            home = None if place.replica is None else self._fleet.get(place.replica)
            if place.replica is not None and not (home and home.serves(place.model) and _is_fit(home, now)):
                yield from self._clear(place, now)

    def reconsider(self, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Decide anew for some of those that wait, one after the other: another replica may be cheaper by now."""
        for waiting in self._next_to_look_at():
            self._looked_at = waiting.number
            if self._anybody_serves(waiting.request.model, now):
                self.queue.take(waiting)
                yield from self._try_all([waiting], now)

    def _next_to_look_at(self) -> list[Waiting]:
        later = [waiting for waiting in self.queue if waiting.number > self._looked_at]
        return (later or list(self.queue))[:RETRIES]

    def overdue(self, now: float) -> list[Waiting]:
        """Return those that have waited for as long as is allowed, and those that had to make room for others.

        Whoever asks lets them `leave`, and tells them.
        """
        limit_s = now - self.rules.max_wait_s
        late, self._displaced = self._displaced, []
        for waiting in self.queue:
            if waiting.since_s > limit_s:
                break
            late.append(waiting)
        return late

    def unserved(self) -> list[Waiting]:
        """Return those whose model no replica serves any more. Whoever asks lets them `leave`, and tells them."""
        if not len(self._fleet) or self._fleet.forward_unknown:
            return []
        models = {place.model for place in self.queue.places}
        gone = {model for model in models if not any(replica.serves(model) for replica in self._fleet)}
        return [waiting for waiting in self.queue if waiting.request.model in gone] if gone else []

    def _fill(self, replica: Replica, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Send those whose turn it is to a replica, as long as it has room."""
        places = self._places(replica)

        def turns() -> Iterator[Waiting]:
            for _ in range(TRIES):
                if not _is_fit(replica, now) or replica.backlog_s(now) > self.rules.room_s:
                    return
                waiting = self.queue.take_next(replica.replica_id, places)
                if waiting is None:
                    return
                yield waiting

        return self._try_all(turns(), now)

    def _clear(self, place: Place, now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Let some of those go elsewhere whose replica takes nothing, or is gone."""
        if not self._anybody_serves(place.model, now):
            return
        owner = place.replica or ""
        turns = iter(lambda: self.queue.take_next(owner, [place]), None)
        yield from self._try_all(islice(turns, MOVES), now)

    def _try_all(self, waiting: Iterable[Waiting], now: float) -> Iterator[tuple[Waiting, Ticket]]:
        """Send those whose replica, decided on anew, has room; all others wait on."""
        waits_on: list[tuple[Waiting, Place, float]] = []
        for one in waiting:
            try:
                found = self._decide(one, now, self.rules.room_s)
            except (NoReplicaError, UnknownModelError):
                waits_on.append((one, one.place, one.work_s))
                continue
            if isinstance(found, Decision):
                waits_on.append((one, *self._place(one.request, found, now)))
            else:
                self.queue.leave(one, found.decision.replica)
                yield one, found
        for one, place, work_s in waits_on:
            self.queue.put(one, place, work_s)

    def _places(self, replica: Replica) -> list[Place]:
        """Return the places that a replica serves."""
        own = (None, replica.replica_id)
        return [place for place in self.queue.places if place.replica in own and replica.serves(place.model)]

    def _anybody_serves(self, model: str, now: float) -> bool:
        """Tell whether to decide anew is of use: while nobody is fit it is better to wait than to be a last resort's.

        One that drains still works, if there is no other.
        """
        return any(
            replica.serves(model) and (_is_fit(replica, now) or replica.health.state is State.DRAINING)
            for replica in self._fleet
        )


def _is_fit(replica: Replica, now: float) -> bool:
    return replica.health.available(now) and not replica.report.asleep
