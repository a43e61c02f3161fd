"""Several routers in front of one fleet: each knows what it does itself at once, and what the others do a while later.

Sixty-four fleets that each hear of everything would be sixty-four times the work. What all routers know is the same:
all that happened until `sync_ms` ago. So there is one fleet that is this much behind, and each router adds what it did
itself since then for as long as it decides. What is learnt of speeds and return times is everybody's, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from router.core.choice import Known
from router.core.learning import settlement_of
from router.core.leases import Lease
from router.core.ledger import Entry, Work
from router.core.replica import IDLE, Load, Replica
from router.core.ticket import Settlement, Ticket
from router.core.tokens import turn_links
from router.core.types import Decision, EngineReport, Outcome, Prompt, RoutingRequest
from router.replay.contender import Call, Hold, Late, Refuse, Send
from router.replay.plan import Plan
from router.replay.warmroute import INDEX_BYTES, CountingFleet, Warmroute, policy_of
from router.sim.types import Finished


class Own(NamedTuple):
    """Something that one router did and the others don't know yet: how it changes a replica's load."""

    known_s: float
    """When all know it."""
    replica: Replica
    load: Load
    work_s: float = 0.0
    """Seconds of recent work that it adds; 0: it is no request."""
    prompt: Prompt | None = None
    """What becomes resident by it and other sessions may begin with."""


class SharedFleet(CountingFleet):
    """What all routers know of each other, and for as long as one of them `decides` what that one knows besides."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(policy_of(plan), INDEX_BYTES)
        self._delay_s = plan.sync_ms / 1000
        self._late: deque[tuple[float, Callable[[float], None]]] = deque()
        """What happened and is not known to all: when, and how they take it in."""
        self._own: list[deque[Own]] = [deque() for _ in range(plan.routers)]
        self._router: deque[Own] | None = None
        self._decides = True
        self._seen: list[tuple[Own, Lease | None, float]] = []
        self._opened: dict[int, Ticket] = {}
        """By the identity of the ticket that its router has."""

    def catch_up(self, now: float) -> None:
        """Take in what all know by `now`."""
        late = self._late
        while late and late[0][0] + self._delay_s <= now:
            at_s, take_in = late.popleft()
            take_in(at_s)

    @contextmanager
    def acts(self, router: int, now: float, decides: bool = True) -> Iterator[None]:
        """Let one router act; if it `decides` anything, it sees the fleet as it knows it."""
        self.catch_up(now)
        own = self._router = self._own[router]
        while own and own[0].known_s <= now:
            own.popleft()
        self._decides = decides
        if decides:
            for one in own:
                self._see(one, now)
        try:
            yield
        finally:
            self._router = None
            while self._seen:
                self._unsee(*self._seen.pop())

    def _see(self, own: Own, now: float) -> None:
        replica = own.replica
        replica.peer_load = Load(*map(sum, zip(replica.peer_load, own.load, strict=True)))
        lease = None
        if own.load.streams > 0:
            replica.recent.add(own.work_s, now)
            lease = None if own.prompt is None else self.index.hold(replica.mirror, own.prompt)
        self._seen.append((own, lease, now))

    def _unsee(self, own: Own, lease: Lease | None, now: float) -> None:
        replica = own.replica
        replica.peer_load = IDLE
        if own.load.streams > 0:
            replica.recent.take_back(own.work_s, now)
        if lease is not None:
            self.index.release(replica.mirror, lease, now, computed=False)

    def _do(self, own: Own, now: float, take_in: Callable[[float], None]) -> None:
        """Note what the router that acts has done."""
        router = self._router
        if router is None or self._delay_s:
            self._late.append((now, take_in))
        if router is None:
            return
        if self._delay_s:
            router.append(own)
            if self._decides:
                self._see(own, now)
        else:
            self._router = None
            take_in(now)
            self._router = router

    def _open(self, known: Known, decision: Decision, request: RoutingRequest, now: float) -> Ticket:
        if self._router is None:
            return super()._open(known, decision, request, now)
        replica = self[decision.replica]
        work = Work(decision.prompt_tokens - decision.matched_tokens, decision.matched_tokens)
        entry = Entry(work, replica.prefill.seconds(*work), request.streaming, now, now)
        ticket = Ticket(0, request, replica, decision, known.scale, None, entry)
        load = Load(work.uncached, 1, 1)
        shared = request.prompt if decision.home is None else None  # nobody else goes on with what follows a history
        own = Own(now + self._delay_s, replica, load, entry.prefill_s, shared)
        self._do(own, now, lambda at_s: self._all_open(ticket, at_s))
        return ticket

    def first_byte(self, ticket: Ticket, now: float) -> None:
        if self._router is None:
            super().first_byte(ticket, now)
            return
        own = Own(now + self._delay_s, ticket.replica, Load(-ticket.entry.work.uncached, -1))
        self._do(own, now, lambda at_s: self.first_byte(self._opened[id(ticket)], at_s))

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> Settlement:
        if self._router is None:
            return super().settle(ticket, outcome, now)
        own = Own(now + self._delay_s, ticket.replica, Load(0, 0, -1))
        self._do(own, now, lambda at_s: self._all_settle(ticket, outcome, at_s))
        return settlement_of(ticket, outcome, True, self.size_of(ticket.request.model))

    def _all_open(self, ticket: Ticket, at_s: float) -> None:
        """Count a request in, with its turn's end as routers tell it to each other."""
        request = ticket.request
        self._opened[id(ticket)] = self.route_to(ticket.replica.replica_id, request, at_s)
        if request.prompt is not None:
            self.index.turns.put_links(turn_links(request.prompt, ticket.decision.prompt_tokens, 0))

    def _all_settle(self, ticket: Ticket, outcome: Outcome, at_s: float) -> None:
        self.settle(self._opened.pop(id(ticket)), outcome, at_s)

    def told(self, name: str, report: EngineReport, now: float) -> None:
        """Take in an engine's gauges when what they are compared with is as old."""
        self._late.append((now, lambda at_s: self._all_observe(name, report, at_s)))

    def _all_observe(self, name: str, report: EngineReport, at_s: float) -> None:
        self.observe_engine(name, report, at_s)


class Several:
    """A contender: `plan.routers` of Warmroute. Each call comes to any of them, whichever turn of a session it is."""

    def __init__(self, plan: Plan) -> None:
        """Start with the plan's replicas, all cold. ValueError: the delay is negative, or touches are asked for."""
        if plan.sync_ms < 0:
            raise ValueError(f"what routers share is 0 ms old or older, not {plan.sync_ms:g}")
        if plan.touch:
            raise ValueError("sessions are touched by one router only")
        self.fleet = SharedFleet(plan)
        for number in range(plan.replicas):
            self.fleet.add(f"r{number}")
        self._routers = [Warmroute(plan, fleet=self.fleet) for _ in range(plan.routers)]
        self._chance = Random(plan.seed)
        self._came_to: dict[int, int] = {}
        """By the call's number."""

    def arrived(self, call: Call, now: float) -> Send | Hold | Refuse:
        """Have one of them route it."""
        router = self._chance.randrange(len(self._routers))
        with self.fleet.acts(router, now):
            verdict = self._routers[router].arrived(call, now)
        if not isinstance(verdict, Refuse):
            self._came_to[call.number] = router
        return verdict

    def first_byte(self, call: Call, now: float) -> list[Late]:
        """Tell the router that sent it."""
        router = self._came_to[call.number]
        with self.fleet.acts(router, now, bool(self._routers[router].admission.queue)):
            return self._routers[router].first_byte(call, now)

    def ended(self, call: Call, finished: Finished, now: float) -> list[Late]:
        """Tell the router that sent it."""
        router = self._came_to.pop(call.number)
        with self.fleet.acts(router, now, bool(self._routers[router].admission.queue)):
            return self._routers[router].ended(call, finished, now)

    def observed(self, replica: int, report: EngineReport, now: float) -> None:
        """Have all take in an engine's gauges."""
        self.fleet.told(f"r{replica}", report, now)

    def tick(self, now: float) -> list[Late]:
        """Look at the queues of those where anything waits."""
        late: list[Late] = []
        for number, router in enumerate(self._routers):
            if router.admission.queue:
                with self.fleet.acts(number, now):
                    late += router.tick(now)
        for call, verdict in late:
            if isinstance(verdict, Refuse):
                del self._came_to[call.number]
        return late

    @property
    def figures(self) -> Mapping[str, float]:
        """How many decisions all of them took."""
        return self._routers[0].figures
