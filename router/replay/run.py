"""One run: clients, a contender, simulated engines, event by event, without clocks or sockets."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from router.core.admission import TICK_S
from router.replay.bounds import Bounds
from router.replay.contender import Call, Contender, Hold, Late, Refuse, Send
from router.replay.contenders import contender_of, shares_cache
from router.replay.demand import Client, Job, Workload
from router.replay.fleet import SimulatedFleet, fits, report_of
from router.replay.plan import Answered, Plan, Result
from router.replay.shortened import shortened
from router.replay.touches import attached
from router.sim.engine import Engine
from router.sim.types import EngineConfig, Event, Finished, Tokens

POLL_S = 1.0
"""As the router reads engines' metrics by default."""

LEAST_RETRY_S = 1.0
"""Least Retry-After that a refused client is told."""

NO_INTERVAL = 1 << 20
"""Only the first token and the end are told."""

NEVER = float("inf")

Progress = Callable[[float], None]
"""Told the share of the traffic that is over, 0 to 1, now and then."""

Listener = Callable[[Job, Answered], None]
"""Told of every answered request, warm-up included, in the order in which they end."""

Make = Callable[[Plan, Sequence[Engine]], Contender]
"""Makes what is replayed, in front of the engines."""


def run(plan: Plan, workload: Workload, progress: Progress | None = None, make: Make = contender_of) -> Result:
    """Replay a workload. The same plan and workload give the same result, real times apart.

    `make`: for a contender that has no name. Raises ValueError: an unknown policy, or a plan that can't be run.
    """
    return Run(plan, workload, progress, make).run()


@dataclass(slots=True, eq=False)
class Sent:
    """A call under way, from its arrival on."""

    call: Call
    client: Client
    arrived_s: float
    first_asked_s: float
    retries: int
    predicted_s: float = 0.0
    sent_s: float = NEVER
    sent: Send | None = None
    first_s: float = NEVER
    cached_tokens: int = 0


class Run:
    """Goes on until the last request that came in time is answered."""

    def __init__(
        self, plan: Plan, workload: Workload, progress: Progress | None = None, make: Make = contender_of
    ) -> None:
        """Raises as `run`."""
        self.plan, self._progress = plan, progress
        self.listener: Listener | None = None
        self._engine = engine_of(plan, workload)
        self.fleet = SimulatedFleet(plan, self._engine, shares_cache(plan.policy))
        self.contender = make(replace(plan, engine=self._engine), self.fleet.engines)
        self._touches = attached(self.contender, self.fleet)
        self.result = Result(plan)
        self._bounds = Bounds(plan.replicas * self._engine.kv_tokens, self._engine.block_tokens)
        self._duration_s, self._warm_up_s = plan.minutes * 60, plan.warm_up_minutes * 60
        self._timed: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = self._calls = 0
        self._given_up = self._too_long = self._longest_queue = 0
        self._ticking = False
        self._live: dict[str, Sent] = {}
        self._held: dict[int, Sent] = {}
        self._router_s = 0.0
        self._poll(0.0)
        for client in shortened(workload.clients(plan.seed), plan.history_tokens, workload.block_tokens):
            self._think(client, client.starts_s, 0.0)

    def run(self) -> Result:
        """Run to the end; once."""
        begun_s = time.perf_counter()
        while self._step():
            pass
        self.result.run_s, self.result.router_s = time.perf_counter() - begun_s, self._router_s
        self.result.ceiling_ratio, self.result.pooled_ratio = self._bounds.ceiling_ratio, self._bounds.pooled_ratio
        self.result.extra = {
            **self.contender.figures,
            "calls": self._calls,
            "given_up": self._given_up,
            "too_long": self._too_long,
            "longest_queue": self._longest_queue,
            "preemptions": sum(engine.stats.preemptions for engine in self.fleet.engines),
        }
        return self.result

    @property
    def under_way(self) -> int:
        """Calls that are held or sent and not yet answered."""
        return len(self._live) + len(self._held)

    def _step(self) -> bool:
        engine_s, replica = self.fleet.next_event()
        timed_s = self._timed[0][0] if self._timed else NEVER
        if engine_s <= timed_s:
            if engine_s == NEVER:
                return False
            for event in self.fleet.advance(replica, engine_s):
                self._take(event)
        else:
            now, _, what = heapq.heappop(self._timed)
            what(now)
        return True

    def _at(self, when_s: float, what: Callable[[float], None]) -> None:
        self._order += 1
        heapq.heappush(self._timed, (when_s, self._order, what))

    # Clients

    def _think(self, client: Client, from_s: float, now: float) -> None:
        job = client.next_job()
        if job is not None and (due_s := from_s + job.think_s) < self._duration_s:
            self._at(due_s, lambda now: self._come(client, job, now))

    def _come(self, client: Client, job: Job, now: float) -> None:
        simulated = job.simulated
        if not fits(simulated, self._engine):
            self._too_long += now >= self._warm_up_s
            self._think(client, now, now)
            return
        self._bounds.take(simulated.block_hashes or (), job.prompt_tokens, now >= self._warm_up_s)
        self._ask(client, job, now, now, self.plan.retries)

    def _ask(self, client: Client, job: Job, first_asked_s: float, now: float, retries: int) -> None:
        self._calls += 1
        call = Call(self._calls, job, client.number % self.plan.tenants)
        sent = Sent(call, client, now, first_asked_s, retries)
        begun_s = time.perf_counter()
        verdict = self.contender.arrived(call, now)
        self._router_s += time.perf_counter() - begun_s
        if isinstance(verdict, Hold):
            self._hold(sent, verdict, now)
        else:
            self._follow(sent, verdict, now)

    def _hold(self, sent: Sent, verdict: Hold, now: float) -> None:
        sent.predicted_s = verdict.predicted_s
        self._held[sent.call.number] = sent
        if now >= self._warm_up_s:
            self._longest_queue = max(self._longest_queue, len(self._held))
        self._wind_up(now)

    def _refuse(self, sent: Sent, refuse: Refuse, now: float) -> None:
        counted = sent.arrived_s >= self._warm_up_s
        self.result.refused += counted
        again_s = now + max(LEAST_RETRY_S, refuse.wait_s)
        if sent.retries and not refuse.final and again_s < self._duration_s:
            self._at(again_s, lambda now: self._ask(
                sent.client, sent.call.job, sent.first_asked_s, now, sent.retries - 1
            ))  # fmt: skip
            return
        self._given_up += counted
        self._think(sent.client, now, now)

    # Engines

    def _follow(self, sent: Sent, verdict: Send | Refuse, now: float) -> None:
        if isinstance(verdict, Refuse):
            self._refuse(sent, verdict, now)
            return
        sent.sent, sent.sent_s = verdict, now
        self._live[sent.call.job.simulated.request_id] = sent
        self.fleet.submit(verdict.replica, sent.call.job.simulated, now)

    def _take(self, event: Event) -> None:
        if self._touches is not None and self._touches.take(event):
            return
        now, sent = event.at_s, self._live[event.request_id]
        if isinstance(event, Finished):
            self._end(sent, event, now)
        elif event.first:
            self._begin(sent, event, now)

    def _begin(self, sent: Sent, event: Tokens, now: float) -> None:
        sent.first_s, sent.cached_tokens = now, event.cached_tokens
        self._let_go(lambda: self.contender.first_byte(sent.call, now), now)

    def _end(self, sent: Sent, finished: Finished, now: float) -> None:
        del self._live[finished.request_id]
        answered = answered_of(sent, finished)
        if sent.arrived_s >= self._warm_up_s:
            self.result.answered.append(answered)
        if self.listener is not None:
            self.listener(sent.call.job, answered)
        self._think(sent.client, now, now)
        self._let_go(lambda: self.contender.ended(sent.call, finished, now), now)

    def _let_go(self, ask: Callable[[], Iterable[Late]], now: float) -> None:
        begun_s = time.perf_counter()
        late = list(ask())
        self._router_s += time.perf_counter() - begun_s
        for call, verdict in late:
            self._follow(self._held.pop(call.number), verdict, now)

    # Time

    def _wind_up(self, now: float) -> None:
        if self._held and not self._ticking:
            self._ticking = True
            self._at(now + TICK_S, self._tick)

    def _tick(self, now: float) -> None:
        self._ticking = False
        self._let_go(lambda: self.contender.tick(now), now)
        self._wind_up(now)

    def _poll(self, now: float) -> None:
        """Read the engines' metrics."""
        for replica, engine in enumerate(self.fleet.engines):
            for event in self.fleet.advance(replica, now):
                self._take(event)
            self.contender.observed(replica, report_of(engine), now)
        if self._touches is not None:
            self._touches.look(now)
        if self._progress is not None and self._duration_s:
            self._progress(min(1.0, now / self._duration_s))
        if now < self._duration_s or self.under_way:
            self._at(now + POLL_S, self._poll)


def engine_of(plan: Plan, workload: Workload) -> EngineConfig:
    """Return the engines' configuration: the plan's, in the workload's blocks."""
    return replace(plan.engine, block_tokens=workload.block_tokens, stream_interval=NO_INTERVAL)


def answered_of(sent: Sent, finished: Finished) -> Answered:
    """Return what is kept of an answered call."""
    assert sent.sent is not None
    return Answered(
        arrived_s=sent.arrived_s,
        first_s=sent.first_s,
        ended_s=finished.at_s,
        prompt_tokens=finished.prompt_tokens,
        cached_tokens=sent.cached_tokens,
        predicted_tokens=sent.sent.predicted_tokens,
        output_tokens=finished.generated_tokens,
        replica=sent.sent.replica,
        reason=sent.sent.reason,
        queued_s=sent.sent_s - sent.arrived_s,
        queued_predicted_s=sent.predicted_s,
        first_asked_s=sent.first_asked_s,
        batch=sent.call.job.request.batch,
    )
