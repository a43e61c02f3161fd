"""Every request that waits is sent, refused or leaves, exactly once, whatever happens to the fleet meanwhile."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.core.admission import TRIES, Admission, QueueFullError, Rules
from router.core.fleet import Fleet
from router.core.health import State
from router.core.queue import TURN_WORKS, Queue
from router.core.ticket import Ticket
from router.core.types import (
    EngineReport,
    NoReplicaError,
    Outcome,
    OutcomeKind,
    RoutingRequest,
    UnknownModelError,
    Usage,
)
from router.core.waiting import WEIGHTS, Owner, Place, Priority, Waiting
from tests.core.worlds import chat
from tests.properties.deeper import runs

REPLICAS = ("r0", "r1", "r2")
MODELS = ("m", "other")

names = st.sampled_from(REPLICAS)
tenants = st.integers(0, 3)


class Waits(RuleBasedStateMachine):
    """A fleet of three with a queue in front, of which anything may happen in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(prior_tokens_per_s=1_000.0)
        self.admission = Admission(self.fleet, Rules(depth_s=0.5, max_wait_s=20.0, max_requests=12, max_bytes=40_000))
        self.now = 0.0
        self.held: dict[int, Waiting] = {}
        self.open: list[Ticket] = []
        self.ended: Counter[int] = Counter()
        for name in REPLICAS:
            self.fleet.add(name)

    # Requests

    @rule(name=st.integers(0, 5), turns=st.integers(1, 3), model=st.sampled_from(MODELS), tenant=tenants,
          batch=st.booleans(), session=st.booleans(), body=st.integers(1, 20_000))  # fmt: skip
    def ask(self, name: int, turns: int, model: str, tenant: int, batch: bool, session: bool, body: int) -> None:
        texts = [("user", f"{name} {turn} " * 400) for turn in range(turns)]
        hint = f"s{name}" if session else None
        request = chat(*texts, session=hint, model=model)._replace(batch=batch, body_bytes=body)
        try:
            found = self.admission.route(request, tenant, self.now)
        except QueueFullError as full:
            assert full.wait_s >= 0.0
        except (NoReplicaError, UnknownModelError):
            pass
        else:
            if isinstance(found, Ticket):
                self.open.append(found)
            else:
                assert found.number not in self.held
                self.held[found.number] = found
        self._let_go()

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 99))
    def leave(self, pick: int) -> None:
        waiting = list(self.held.values())[pick % len(self.held)]
        self.admission.leave(waiting)
        self._gone(waiting)

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 99), kind=st.sampled_from(list(OutcomeKind)), first_byte=st.booleans())
    def end(self, pick: int, kind: OutcomeKind, first_byte: bool) -> None:
        ticket = self.open.pop(pick % len(self.open))
        name = ticket.replica.replica_id
        if first_byte:
            self.fleet.first_byte(ticket, self.now)
            self._sent(self.admission.released(name, self.now))
        self.fleet.settle(ticket, Outcome(kind, 200, Usage(100, 50, 10, "stop")), self.now)
        self._sent(self.admission.released(name, self.now))

    @rule(seconds=st.floats(0.0, 6.0), reconsider=st.booleans())
    def tick(self, seconds: float, reconsider: bool) -> None:
        self.now += seconds
        self._sent(self.admission.tick(self.now))
        if reconsider:
            self._sent(self.admission.reconsider(self.now))
            for waiting in self.admission.unserved():
                assert not any(replica.serves(waiting.request.model) for replica in self.fleet)
                self.admission.leave(waiting)
                self._gone(waiting)
        self._let_go()

    # Replicas

    @rule(name=names)
    def come_or_go(self, name: str) -> None:
        if name in self.fleet:
            self.fleet.remove(name, self.now)
        else:
            self.fleet.add(name)

    @rule(name=names, what=st.sampled_from(["drain", "undrain", "succeeded"]))
    def order(self, name: str, what: str) -> None:
        if name in self.fleet:
            getattr(self.fleet[name].health, what)(self.now)

    @rule(name=names, models=st.sampled_from([(), ("m",), ("other",), MODELS]))
    def load(self, name: str, models: tuple[str, ...]) -> None:
        if name in self.fleet:
            self.fleet[name].models = frozenset(models)

    @rule(name=names, waiting=st.integers(0, 20), asleep=st.booleans(), start_s=st.floats(0.0, 9.0))
    def report(self, name: str, waiting: int, asleep: bool, start_s: float) -> None:
        if name in self.fleet:
            seen = EngineReport(waiting=waiting, kv_tokens=10_000, start_time_s=start_s, asleep=asleep)
            self.fleet.observe_engine(name, seen, self.now)

    @rule(depth_s=st.sampled_from([0.0, 0.1, 0.5, 3.0]), requests=st.integers(1, 20))
    def reload(self, depth_s: float, requests: int) -> None:
        self.admission.rules = Rules(depth_s, 20.0, requests, 40_000)

    # Books

    def _sent(self, sent: object) -> None:
        found = list(sent)  # type: ignore[call-overload]
        for waiting, ticket in found:
            assert ticket.request is waiting.request
            self.open.append(ticket)
            self._gone(waiting)

    def _let_go(self) -> None:
        """As the waiting room does with those who are overdue or have to make room."""
        for waiting in self.admission.overdue(self.now):
            assert self.admission.predicted_wait_s(waiting, self.now) >= 0.0
            self.admission.leave(waiting)
            if waiting.number in self.held:  # it has not left by itself
                self._gone(waiting)

    def _gone(self, waiting: Waiting) -> None:
        self.ended[waiting.number] += 1
        assert self.ended[waiting.number] == 1
        del self.held[waiting.number]

    @invariant()
    def the_queue_holds_those_who_wait_and_nobody_else(self) -> None:
        queue = self.admission.queue
        assert {waiting.number for waiting in queue} == set(self.held)
        assert queue.bytes == sum(waiting.body_bytes for waiting in self.held.values())
        assert sum(queue.count(priority) for priority in Priority) == len(queue)
        assert set(queue.places) == {waiting.place for waiting in self.held.values()}
        assert all(waiting.in_line for waiting in self.held.values())

    @invariant()
    def nothing_that_waits_is_in_a_price_once_a_decision_is_made(self) -> None:
        assert all(replica.held_s(9.0) == 0.0 for replica in self.fleet)

    def teardown(self) -> None:
        """Let the fleet be well again, and everything come to its end."""
        for name in REPLICAS:
            if name not in self.fleet:
                self.fleet.add(name)
            replica = self.fleet[name]
            replica.models = frozenset()
            replica.health.undrain(self.now)
            self.fleet.observe_engine(name, EngineReport(waiting=0, asleep=False, start_time_s=20.0), self.now)
            replica.health.succeeded(self.now)
        self.admission.rules = Rules(depth_s=0.5, max_wait_s=1e9)
        for _ in range(100 * TRIES):
            self.now += 0.5
            for ticket in self.open:
                self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), self.now)
            self.open.clear()
            self._sent(self.admission.tick(self.now))
            if not self.held and not self.open:
                break
        assert not self.held
        assert not self.admission.queue
        assert (self.admission.queue.bytes, self.admission.queue.places) == (0, [])
        for replica in self.fleet:
            assert replica.health.state is State.READY
            assert (replica.ledger.streams, replica.ledger.uncached_tokens) == (0, 0)


TestWaits = Waits.TestCase
TestWaits.settings = runs(150)


jobs = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(Priority), st.floats(0.0, 4.0), st.floats(0.0, 50.0)), max_size=60
)


def put_all(queue: Queue, asked: list[tuple[int, Priority, float, float]]) -> list[Waiting]:
    held = []
    for number, (tenant, priority, work_s, since_s) in enumerate(asked):
        request = RoutingRequest("m", "chat", None, 1)
        waiting = Waiting(number, request, Owner(priority, tenant), since_s)
        queue.put(waiting, Place(None, "m"), work_s)
        held.append(waiting)
    return held


@given(jobs)
def test_everybody_is_sent_once_and_in_order_within_a_line(asked: list[tuple[int, Priority, float, float]]) -> None:
    queue = Queue()
    held = put_all(queue, asked)
    sent: list[Waiting] = []
    while (waiting := queue.take_next("r", queue.places)) is not None:
        queue.leave(waiting, "r")
        sent.append(waiting)
    assert sorted(waiting.number for waiting in sent) == [waiting.number for waiting in held]
    for owner in {waiting.owner for waiting in held}:
        ranks = [waiting.rank for waiting in sent if waiting.owner == owner]
        assert ranks == sorted(ranks)


@given(jobs.filter(lambda asked: len(asked) > 4), st.integers(1, 60))
def test_nobody_who_waits_throughout_gets_less_than_its_share(
    asked: list[tuple[int, Priority, float, float]], count: int
) -> None:
    """What two owners that both wait have had differs by a turn and their largest requests at the most."""
    queue = Queue()
    held = put_all(queue, asked)
    had: Counter[Owner] = Counter()
    waits = Counter(waiting.owner for waiting in held)
    for _ in range(count):
        waiting = queue.take_next("r", queue.places)
        if waiting is None:
            return
        queue.leave(waiting, "r")
        had[waiting.owner] += max(0.01, waiting.work_s)  # type: ignore[assignment]
        waits[waiting.owner] -= 1
        if not waits[waiting.owner]:
            return
    for priority in Priority:
        of_one = [had[owner] for owner in waits if owner.priority is priority]
        assert not of_one or max(of_one) - min(of_one) <= 2 * 4.0 + TURN_WORKS * 4.0 + 0.01
    shares = [sum(had[o] for o in waits if o.priority is p) / WEIGHTS[p] for p in {o.priority for o in waits}]
    assert max(shares) - min(shares) <= 4.0 + 4.0 / WEIGHTS[Priority.INTERACTIVE] + 0.01
