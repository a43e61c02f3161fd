"""A replica that always has more to do than it can: whoever waits is sent, and what comes too late does not pass it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.admission import Admission, Rules
from router.core.fleet import Fleet
from router.core.ticket import Ticket
from router.core.types import Outcome, OutcomeKind, RoutingRequest
from router.core.waiting import Waiting

SPEED = 1_000.0
DEPTH_S = 0.5

LONGEST_S = 600.0
"""Beyond any fair wait of one request of 2 s: five tenants that take turns by three works at the most, and batch that
gets an eleventh of all, come to half of that."""


class Arrival(NamedTuple):
    """A request, `gap_s` after the one before."""

    gap_s: float
    tokens: int
    model: str = "m"
    tenant: int = 0
    batch: bool = False

    @property
    def request(self) -> RoutingRequest:
        return RoutingRequest(self.model, "chat", None, self.tokens * 4, batch=self.batch)


arrivals = st.lists(
    st.builds(Arrival, st.sampled_from([0.0, 0.01, 0.3, 2.0]), st.integers(20, 2_000), st.sampled_from(["m", "other"])),
    max_size=80,
)
floods = st.lists(
    st.builds(
        Arrival, st.sampled_from([0.0, 0.2]), st.integers(500, 2_000), st.just("m"), st.integers(0, 3), st.booleans()
    ),
    min_size=5,
    max_size=40,
)


class OneReplica:
    """An engine that computes one prompt after the other, and the queue in front of it."""

    def __init__(self) -> None:
        self.fleet = Fleet(prior_tokens_per_s=SPEED)
        self.fleet.add("r0")
        self.admission = Admission(self.fleet, Rules(DEPTH_S, max_wait_s=1e9, max_requests=10_000))
        self.now = self.free_s = 0.0
        self.running: deque[tuple[float, Ticket]] = deque()
        self.waiting: dict[int, Waiting] = {}
        self.sent_at_s: list[tuple[float, Waiting]] = []

    def arrive(self, arrival: Arrival) -> None:
        self.go_on_until(self.now + arrival.gap_s)
        found = self.admission.route(arrival.request, arrival.tenant, self.now)
        if isinstance(found, Waiting):
            self.waiting[found.number] = found
        else:
            self.begin(found)

    def begin(self, ticket: Ticket) -> None:
        self.free_s = max(self.free_s, self.now) + ticket.entry.work.uncached / SPEED
        self.running.append((self.free_s, ticket))

    def go_on_until(self, until_s: float) -> None:
        while self.running and self.running[0][0] <= until_s:
            self.now, ticket = self.running.popleft()
            self.fleet.first_byte(ticket, self.now)
            self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), self.now)
            for waiting, sent in self.admission.released("r0", self.now):
                self.nobody_is_passed(waiting)
                del self.waiting[waiting.number]
                self.sent_at_s.append((self.now, waiting))
                self.begin(sent)
        self.now = max(self.now, until_s) if until_s != float("inf") else self.now

    def nobody_is_passed(self, sent: Waiting) -> None:
        """Check that nobody of the same owner was due before the one that is sent had come."""
        for other in self.waiting.values():
            assert other.owner != sent.owner or other.rank[0] >= sent.since_s

    def end(self) -> None:
        self.go_on_until(float("inf"))
        assert not self.waiting
        assert not self.admission.queue
        assert self.fleet["r0"].ledger.streams == 0


@given(arrivals)
def test_whoever_comes_after_one_was_due_does_not_pass_it(asked: list[Arrival]) -> None:
    world = OneReplica()
    for arrival in asked:
        world.arrive(arrival)
    world.end()


@settings(max_examples=40)
@given(floods, st.integers(20, 2_000), st.booleans())
def test_nobody_waits_for_ever_however_many_come(flood: list[Arrival], tokens: int, batch: bool) -> None:
    """One request of a tenant of its own, and others that come again and again, more than is served."""
    world = OneReplica()
    for arrival in flood:
        world.arrive(arrival)
    world.arrive(Arrival(0.0, tokens, tenant=9, batch=batch))
    mine = [waiting for waiting in world.waiting.values() if waiting.owner.tenant == 9]
    while mine and mine[0].number in world.waiting:
        assert world.now - mine[0].since_s < LONGEST_S, "it starves"
        for arrival in flood:
            world.arrive(arrival._replace(gap_s=0.9 * arrival.tokens / SPEED))
    world.end()
