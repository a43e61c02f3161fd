"""One offline run of holding.py: the router's core and simulated engines, event by event, without clocks or sockets."""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.holding_demand import Client, Demand, Job
from router.core.admission import Admission, QueueFullError, Rules
from router.core.fleet import Fleet
from router.core.policy import Policy
from router.core.ticket import Ticket
from router.core.types import Decision, EngineReport, Outcome, OutcomeKind, RoutingRequest, Usage
from router.core.waiting import Waiting
from router.proxy.waiting_room import TICK_S
from router.sim.engine import Engine
from router.sim.types import Event, Finished, Tokens

POLL_S = 1.0  # as the router reads engines' metrics by default
NEVER = float("inf")


class CountingFleet(Fleet):
    """Counts how often requests are decided on."""

    decisions = 0

    def route(self, request: RoutingRequest, now: float, excluded: Iterable[str] = ()) -> Ticket:
        self.decisions += 1
        return super().route(request, now, tuple(excluded))

    def route_within(self, request: RoutingRequest, now: float, depth_s: float) -> Ticket | Decision:
        self.decisions += 1
        return super().route_within(request, now, depth_s)


@dataclass(slots=True)
class Asked:
    """One request from arrival to its first token."""

    client: Client
    job: Job
    arrived_s: float
    first_asked_s: float
    """Earlier than `arrived_s` where it was refused before and came again."""
    predicted_s: float = 0.0
    sent_s: float = NEVER
    first_s: float = NEVER
    cached_tokens: int = 0
    ticket: Ticket | None = None

    @property
    def batch(self) -> bool:
        return self.job.request.batch

    @property
    def prompt_tokens(self) -> int:
        return len(self.job.simulated.token_ids)


@dataclass(slots=True)
class Seen:
    """What a run showed. Only requests that arrived after the warm-up count."""

    answered: list[Asked] = field(default_factory=list)
    refused: list[Asked] = field(default_factory=list)
    given_up: int = 0
    longest_queue: int = 0
    uncached_tokens: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    router_s: float = 0.0
    decisions: int = 0
    requests: int = 0
    preemptions: int = 0


class Run:
    """Clients, one router, its replicas. `retries`: how often a refused request comes again, after its Retry-After."""

    def __init__(
        self,
        policy: Policy,
        rules: Rules,
        demand: Demand,
        replicas: int,
        duration_s: float,
        warm_up_s: float,
        tenants: int = 1,
        retries: int = 2,
    ) -> None:
        self.fleet = CountingFleet(policy, 1 << 30)
        self.admission = Admission(self.fleet, rules)
        self.engines = {f"r{number}": Engine(demand.engine) for number in range(replicas)}
        self.demand, self.duration_s, self.warm_up_s = demand, duration_s, warm_up_s
        self.tenants, self.retries = tenants, retries
        self.seen = Seen()
        self.timed: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = self.ticks = 0
        self.ticking = False
        self.live: dict[str, Asked] = {}
        self.held: dict[int, Asked] = {}
        for replica in self.engines:
            self.fleet.add(replica)
        self.poll(0.0)
        for client in demand.clients:
            self.think(client, client.starts_s, 0.0)

    def at(self, when_s: float, what: Callable[[float], None]) -> None:
        self.order += 1
        heapq.heappush(self.timed, (when_s, self.order, what))

    def run(self) -> Seen:
        """Until the last request that was sent in time is answered."""
        while True:
            engine_s, name = min((e.next_event_s() or NEVER, name) for name, e in self.engines.items())
            timed_s = self.timed[0][0] if self.timed else NEVER
            if min(engine_s, timed_s) == NEVER:
                break
            if engine_s <= timed_s:
                for event in self.engines[name].advance(engine_s):
                    self.take(name, event)
            else:
                now, _, what = heapq.heappop(self.timed)
                what(now)
        self.seen.decisions = self.fleet.decisions
        self.seen.preemptions = sum(engine.stats.preemptions for engine in self.engines.values())
        return self.seen

    def think(self, client: Client, from_s: float, now: float) -> None:
        job = client.next_job()
        if job is not None and (due_s := from_s + job.think_s) < self.duration_s:
            self.at(due_s, lambda now: self.ask(client, job, now, now, self.retries))

    def ask(self, client: Client, job: Job, first_asked_s: float, now: float, retries: int) -> None:
        asked = Asked(client, job, now, first_asked_s)
        self.seen.requests += 1
        begun_s = time.thread_time()
        try:
            found = self.admission.route(job.request, client.number % self.tenants, now)
            if isinstance(found, Waiting):
                asked.predicted_s = self.admission.predicted_wait_s(found, now)
        except QueueFullError as error:
            self.refuse(asked, error.wait_s, retries, now)
            return
        finally:
            self.seen.router_s += time.thread_time() - begun_s
        if isinstance(found, Ticket):
            self.send(asked, found, now)
            return
        self.held[found.number] = asked
        if now >= self.warm_up_s:
            self.seen.longest_queue = max(self.seen.longest_queue, len(self.held))
        self.wind_up(now)

    def refuse(self, asked: Asked, wait_s: float, retries: int, now: float) -> None:
        if asked.arrived_s >= self.warm_up_s:
            self.seen.refused.append(asked)
        client, job = asked.client, asked.job
        again_s = now + max(1.0, wait_s)
        if retries and again_s < self.duration_s:
            self.at(again_s, lambda now: self.ask(client, job, asked.first_asked_s, now, retries - 1))
            return
        self.seen.given_up += asked.arrived_s >= self.warm_up_s
        self.think(client, now, now)

    def send(self, asked: Asked, ticket: Ticket, now: float) -> None:
        asked.ticket, asked.sent_s = ticket, now
        self.live[asked.job.simulated.request_id] = asked
        self.engines[ticket.replica.replica_id].submit(asked.job.simulated, now)

    def take(self, replica: str, event: Event) -> None:
        asked, now = self.live[event.request_id], event.at_s
        assert asked.ticket is not None
        if isinstance(event, Tokens) and not event.first:
            return
        begun_s = time.thread_time()
        if isinstance(event, Tokens):
            self.fleet.first_byte(asked.ticket, now)
        else:
            self.fleet.settle(asked.ticket, outcome_of(event), now)
        self.seen.router_s += time.thread_time() - begun_s
        if isinstance(event, Tokens):
            asked.first_s, asked.cached_tokens = now, event.cached_tokens
            self.count(replica, asked)
        else:
            del self.live[event.request_id]
            self.think(asked.client, now, now)
        self.let_go(lambda: self.admission.released(replica, now), now)

    def count(self, replica: str, asked: Asked) -> None:
        if self.warm_up_s <= asked.arrived_s and asked.ticket is not None:
            self.seen.answered.append(asked)
            self.seen.uncached_tokens[replica] += asked.prompt_tokens - asked.cached_tokens
            self.seen.reasons[asked.ticket.decision.reason] += 1

    def let_go(self, ask: Callable[[], Iterable[tuple[Waiting, Ticket]]], now: float) -> None:
        begun_s = time.thread_time()
        sent = list(ask())
        self.seen.router_s += time.thread_time() - begun_s
        for waiting, ticket in sent:
            self.send(self.held.pop(waiting.number), ticket, now)

    def wind_up(self, now: float) -> None:
        if self.held and not self.ticking:
            self.ticking = True
            self.at(now + TICK_S, self.tick)

    def tick(self, now: float) -> None:
        """As `WaitingRoom` does."""
        self.ticking = False
        self.ticks += 1
        self.let_go(lambda: self.admission.tick(now), now)
        self.let_go(lambda: self.admission.reconsider(now), now)
        for waiting in self.admission.overdue(now):
            wait_s = self.admission.predicted_wait_s(waiting, now)
            self.admission.leave(waiting)
            self.refuse(self.held.pop(waiting.number), wait_s, 0, now)
        self.wind_up(now)

    def poll(self, now: float) -> None:
        """Read the engines' metrics."""
        for name, engine in self.engines.items():
            self.fleet.observe_engine(name, report_of(engine), now)
        if now < self.duration_s or self.live or self.held:
            self.at(now + POLL_S, self.poll)


def report_of(engine: Engine) -> EngineReport:
    return EngineReport(
        running=engine.running,
        waiting=engine.waiting,
        kv_usage_ratio=engine.kv_usage_ratio,
        kv_tokens=engine.config.kv_tokens,
        block_tokens=engine.config.block_tokens,
        prefix_queries_tokens=engine.stats.prefix_queries_tokens,
        prefix_hits_tokens=engine.stats.prefix_hits_tokens,
        start_time_s=1.0,
    )


def outcome_of(event: Finished) -> Outcome:
    usage = Usage(event.prompt_tokens, event.cached_tokens, event.generated_tokens, event.reason)
    return Outcome(OutcomeKind.COMPLETED, 200, usage)
