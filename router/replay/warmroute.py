"""Warmroute itself: the fleet's decisions, and the queue in front of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from router.core.admission import Admission, QueueFullError, Rules
from router.core.fleet import Fleet
from router.core.policies import POLICIES
from router.core.policy import Policy, session_hash
from router.core.ticket import Ticket
from router.core.types import Decision, EngineReport, Outcome, OutcomeKind, RoutingRequest, Usage
from router.core.waiting import Waiting
from router.replay.contender import Call, Hold, Late, Refuse, Send
from router.replay.plan import Plan
from router.replay.touches import Touches
from router.sim.types import Finished

INDEX_BYTES = 1 << 30
"""Room for everything remembered of prompts: a replay is about the policy, not about a small index."""

UNHELD = "-unheld"
"""End of the name of a policy that holds no requests."""

NAMES = [f"{policy}{end}" for policy in POLICIES for end in ("", UNHELD)]
"""Warmroute's policies, each with its queue and without."""


def policy_of(plan: Plan) -> Policy:
    """Return the policy that a plan names. KeyError: there is none of this name."""
    return POLICIES[plan.policy.removesuffix(UNHELD)]


class CountingFleet(Fleet):
    """Counts how often requests are decided on."""

    decisions = 0

    def route(self, request: RoutingRequest, now: float, excluded: Iterable[str] = ()) -> Ticket:
        self.decisions += 1
        return super().route(request, now, tuple(excluded))

    def route_within(self, request: RoutingRequest, now: float, depth_s: float) -> Ticket | Decision:
        self.decisions += 1
        return super().route_within(request, now, depth_s)


class Warmroute:
    """A contender. Replica n is `rn` in its fleet."""

    def __init__(self, plan: Plan, policy: Policy | None = None, fleet: CountingFleet | None = None) -> None:
        """Start with the plan's replicas, all cold. `policy`: in place of the one that the plan names.

        `fleet`: one that other routers have as well. KeyError: there is no policy of this name.
        """
        self._policy = policy or policy_of(plan)
        self.fleet = CountingFleet(self._policy, INDEX_BYTES) if fleet is None else fleet
        depth_s = 0.0 if plan.policy.endswith(UNHELD) else plan.queue_depth_s
        self.admission = Admission(self.fleet, Rules(depth_s, plan.max_queue_wait_s))
        self._numbers = {f"r{number}": number for number in range(plan.replicas)}
        self._names = list(self._numbers)
        self._tickets: dict[int, Ticket] = {}
        self._held: dict[int, Call] = {}
        """By the number of what waits."""
        if fleet is None:
            for name in self._names:
                self.fleet.add(name)
        self.touches = Touches(self.fleet, INDEX_BYTES) if plan.touch else None

    def arrived(self, call: Call, now: float) -> Send | Hold | Refuse:
        """Route it, or let it wait."""
        try:
            found = self.admission.route(_request_of(call, self._policy), call.tenant, now)
        except QueueFullError as error:
            return Refuse(error.wait_s)
        if isinstance(found, Ticket):
            return self._sent(call, found, now)
        self._held[found.number] = call
        return Hold(self.admission.predicted_wait_s(found, now))

    def first_byte(self, call: Call, now: float) -> list[Late]:
        """Its prefill is over, so its replica may have room."""
        ticket = self._tickets[call.number]
        self.fleet.first_byte(ticket, now)
        return self._let_go(self.admission.released(ticket.replica.replica_id, now), now)

    def ended(self, call: Call, finished: Finished, now: float) -> list[Late]:
        """Settle it; its replica may have room."""
        ticket = self._tickets.pop(call.number)
        outcome = outcome_of(finished)
        settlement = self.fleet.settle(ticket, outcome, now)
        if self.touches is not None:
            self.touches.touching.settled(ticket, settlement, outcome.usage, now)
        return self._let_go(self.admission.released(ticket.replica.replica_id, now), now)

    def observed(self, replica: int, report: EngineReport, now: float) -> None:
        """Take in an engine's gauges."""
        self.fleet.observe_engine(self._names[replica], report, now)

    def tick(self, now: float) -> list[Late]:
        """Look at the queue as the live router does."""
        late = self._let_go(self.admission.tick(now), now)
        late += self._let_go(self.admission.reconsider(now), now)
        for waiting in self.admission.overdue(now):
            wait_s = self.admission.predicted_wait_s(waiting, now)
            self.admission.leave(waiting)
            late.append((self._held.pop(waiting.number), Refuse(wait_s, final=True)))
        return late

    @property
    def figures(self) -> Mapping[str, float]:
        """How many decisions were taken, and what became of touches."""
        touches = {} if self.touches is None else self.touches.figures
        return {"decisions": self.fleet.decisions, **touches}

    def _let_go(self, sent: Iterable[tuple[Waiting, Ticket]], now: float) -> list[Late]:
        late: list[Late] = []
        for waiting, ticket in sent:
            call = self._held.pop(waiting.number)
            late.append((call, self._sent(call, ticket, now)))
        return late

    def _sent(self, call: Call, ticket: Ticket, now: float) -> Send:
        self._tickets[call.number] = ticket
        if self.touches is not None:
            self.touches.touching.sent(ticket, call.job, call.job.request.body_bytes, now)
        decision = ticket.decision
        return Send(self._numbers[decision.replica], decision.reason, decision.matched_tokens)


def _request_of(call: Call, policy: Policy) -> RoutingRequest:
    """Return the request; `session-hash` is for clients that name their sessions, so there they do."""
    request = call.job.request
    if policy is not session_hash or call.job.session is None:
        return request
    return request._replace(session=call.job.session, session_is_explicit=True)


def outcome_of(finished: Finished) -> Outcome:
    """Return the end of an answer as the router's proxy tells it."""
    usage = Usage(finished.prompt_tokens, finished.cached_tokens, finished.generated_tokens, finished.reason)
    return Outcome(OutcomeKind.COMPLETED, 200, usage)
