"""Whatever happens in whatever order, the books balance."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.core.bounded import LINK_BYTES
from router.core.fleet import Fleet
from router.core.residency import ENTRY_BYTES
from router.core.types import EngineReport, NoReplicaError, Outcome, OutcomeKind, Usage
from tests.core.worlds import chat
from tests.properties.deeper import runs

kinds = st.sampled_from(list(OutcomeKind))
names = st.integers(0, 5)
statuses = st.sampled_from([200, 400, 503])


class Books(RuleBasedStateMachine):
    """Routes, first bytes, ends of all kinds, restarts and flaps of replicas in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(index_bytes=400 * ENTRY_BYTES)
        self.now = 0.0
        self.open: list = []
        for number in range(3):
            self.fleet.add(f"r{number}")

    @rule(name=names, turns=st.integers(1, 4), size=st.integers(1, 40), session=st.booleans())
    def route(self, name: int, turns: int, size: int, session: bool) -> None:
        said = []
        for number in range(turns):
            said += [("user", f"{name} {number} " * size * 10), ("assistant", f"{name}-{number} " * 50)]
        request = chat(("system", "shared " * 100), *said, session=str(name) if session else None)
        try:
            self.open.append(self.fleet.route(request, self.now))
        except NoReplicaError:
            assert len(self.fleet) == 0

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 99))
    def first_byte(self, pick: int) -> None:
        self.fleet.first_byte(self.open[pick % len(self.open)], self.now)

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 99), kind=kinds, cached=st.none() | st.integers(0, 5_000), status=statuses)
    def settle(self, pick: int, kind: OutcomeKind, cached: int | None, status: int) -> None:
        ticket = self.open.pop(pick % len(self.open))
        usage = Usage(None if cached is None else cached + 100, cached, 50, "stop")
        self.fleet.settle(ticket, Outcome(kind, status, usage), self.now)

    @rule(seconds=st.floats(0.0, 30.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=st.integers(0, 4))
    def come_or_go(self, number: int) -> None:
        name = f"r{number}"
        if name in self.fleet:
            self.fleet.remove(name)
        else:
            self.fleet.add(name)

    @rule(number=st.integers(0, 4), start=st.integers(1, 3), tokens=st.none() | st.integers(100, 50_000))
    def read_metrics(self, number: int, start: int, tokens: int | None) -> None:
        if f"r{number}" in self.fleet:
            report = EngineReport(start_time_s=start * 10.0, kv_tokens=tokens, waiting=3)
            self.fleet.observe_engine(f"r{number}", report)

    @invariant()
    def ledgers_are_the_sum_of_what_is_open(self) -> None:
        for replica in self.fleet:
            mine = [ticket for ticket in self.open if ticket.replica is replica]
            assert replica.ledger.streams == len(mine)
            counted = sum(t.entry.work.uncached for t in mine if t.entry.prefilling)
            assert replica.ledger.uncached_tokens == counted
            waits_s = sum(t.entry.prefill_s for t in mine if t.entry.prefilling)
            assert replica.ledger.prefill_s == pytest.approx(waits_s, abs=1e-9)
            contexts = (t.entry.work.uncached + t.entry.work.cached for t in mine)
            assert replica.ledger.context_tokens == sum(contexts)

    @invariant()
    def residency_is_prefix_closed_and_sized(self) -> None:
        for replica in self.fleet:
            mirror = replica.mirror
            assert mirror.held_bytes >= 0
            assert mirror.idle_bytes >= 0
            for ticket in self.open:
                if ticket.replica is replica and ticket.lease is not None and ticket.lease.epoch == mirror.epoch:
                    assert mirror.match(ticket.lease.hashes) == len(ticket.lease.hashes)

    @invariant()
    def the_index_is_counted_and_within_its_budget(self) -> None:
        fleet = self.fleet
        blocks, links = sum(len(replica.mirror) for replica in fleet), len(fleet.index.turns) + len(fleet.index.homes)
        assert fleet.index.size_bytes == blocks * ENTRY_BYTES + links * LINK_BYTES
        assert fleet.index.size_bytes <= 400 * ENTRY_BYTES

    def teardown(self) -> None:
        for ticket in self.open:
            self.fleet.settle(ticket, Outcome(OutcomeKind.CLIENT_LEFT), self.now)
        for replica in self.fleet:
            assert (replica.ledger.streams, replica.ledger.uncached_tokens, replica.mirror.held_bytes) == (0, 0, 0)


Books.TestCase.settings = runs(60)
TestBooks = Books.TestCase
