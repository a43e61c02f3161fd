"""Whatever has happened, a router that starts with a snapshot believes what the one before believed."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from router.core.bounded import LINK_BYTES
from router.core.fleet import Fleet
from router.core.residency import ENTRY_BYTES
from router.core.snapshot import Snapshot, restore, take
from router.core.ticket import Ticket
from router.core.types import EngineReport, Outcome, OutcomeKind, Prompt, Usage
from tests.core.worlds import chat
from tests.properties.deeper import runs

INDEX_BYTES = 64 << 20
SMALL_INDEX_BYTES = 60 * ENTRY_BYTES
NEVER_COMPUTED = [OutcomeKind.REFUSED, OutcomeKind.RESET, OutcomeKind.CLIENT_LEFT]


class Restarts(RuleBasedStateMachine):
    """Routes, ends of all kinds, evictions, restarts of engines; now and then the router is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = self.built(INDEX_BYTES)
        self.now = 0.0
        self.open: list[Ticket] = []
        self.routed = 0
        self.prompts: dict[str, Prompt] = {}

    def built(self, index_bytes: int) -> Fleet:
        fleet = Fleet(index_bytes=index_bytes)
        for number in range(3):
            fleet.add(f"r{number}")
        return fleet

    @rule(name=st.integers(0, 3), turns=st.integers(1, 4), size=st.integers(1, 40), session=st.booleans())
    def route(self, name: int, turns: int, size: int, session: bool) -> None:
        said = []
        for number in range(turns):
            said += [("user", f"{name} {number} " * size * 10), ("assistant", f"{name}-{number} " * 50)]
        request = chat(("system", "shared " * 100), *said, session=str(name) if session else None)
        self.open.append(self.fleet.route(request, self.now))
        self.routed = self.open[-1].number
        assert request.prompt is not None
        self.prompts[f"{name} {turns} {size}"] = request.prompt

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 99), answer=st.integers(0, 300), cached=st.none() | st.integers(0, 5_000))
    def answer(self, pick: int, answer: int, cached: int | None) -> None:
        ticket = self.open.pop(pick % len(self.open))
        self.fleet.first_byte(ticket, self.now)
        usage = Usage(None if cached is None else cached + 100, cached, answer, "stop")
        self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), self.now)

    @precondition(lambda self: self.open and self.open[-1].number == self.routed)
    @rule(kind=st.sampled_from(NEVER_COMPUTED))
    def fail(self, kind: OutcomeKind) -> None:
        """The last request never reached its engine. Where others came after it, they may have brought its blocks."""
        self.fleet.settle(self.open.pop(), Outcome(kind), self.now)

    @rule(seconds=st.floats(0.0, 30.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=st.integers(0, 2), start=st.integers(1, 2), tokens=st.none() | st.integers(100, 50_000))
    def read_metrics(self, number: int, start: int, tokens: int | None) -> None:
        self.fleet.observe_engine(f"r{number}", EngineReport(start_time_s=start * 10.0, kv_tokens=tokens))

    @rule(number=st.integers(0, 2), blocks=st.integers(1, 20))
    def evict(self, number: int, blocks: int) -> None:
        mirror = self.fleet[f"r{number}"].mirror
        stamp = mirror.oldest_stamp()
        if stamp is not None:
            self.fleet.index.evict_unused_since(mirror, stamp + blocks)

    def snapshot(self) -> Snapshot:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(take(self.fleet, self.now)), type=Snapshot)

    @rule(later=st.floats(0.0, 1e6))
    def start_again(self, later: float) -> None:
        heir = self.built(INDEX_BYTES)
        restore(heir, self.snapshot(), later)
        self.books_balance(heir, INDEX_BYTES)
        if any(replica.mirror.held_bytes > replica.mirror.capacity_bytes for replica in self.fleet):
            self.no_more_than_before(heir)  # of what ran at once, an engine keeps what it has room for
        else:
            self.same_beliefs(heir)
        if not self.open:
            for replica in (*self.fleet, *heir):  # the fleet before is not needed any more
                replica.mirror.evict_entries(len(replica.mirror) // 2)
            self.same_residency(heir)
            heir = self.built(INDEX_BYTES)
            restore(heir, self.snapshot(), later)
        self.fleet, self.now, self.open, self.routed = heir, later, [], -1

    @rule(later=st.floats(0.0, 1e6))
    def start_smaller(self, later: float) -> None:
        heir = self.built(SMALL_INDEX_BYTES)
        restore(heir, self.snapshot(), later)
        self.books_balance(heir, SMALL_INDEX_BYTES)
        self.no_more_than_before(heir)

    def no_more_than_before(self, heir: Fleet) -> None:
        for replica, before in zip(heir, self.fleet, strict=True):
            assert replica.mirror.idle_bytes <= replica.mirror.capacity_bytes
            for prompt in self.prompts.values():
                assert replica.mirror.match(prompt.hashes) <= before.mirror.match(prompt.hashes)

    def same_beliefs(self, heir: Fleet) -> None:
        self.same_residency(heir)
        for before, after in zip(self.fleet, heir, strict=True):
            assert after.mirror.idle_bytes == before.mirror.idle_bytes + before.mirror.held_bytes
            assert after.mirror.capacity_bytes == before.mirror.capacity_bytes
            assert after.prefill.state == before.prefill.state
            assert after.decode.state == before.decode.state
            assert after.report.start_time_s == before.report.start_time_s
        assert after_order(heir) == after_order(self.fleet)
        assert {model: size.learnt for model, size in heir.sizes.items()} == {
            model: size.learnt for model, size in self.fleet.sizes.items()
        }

    def same_residency(self, heir: Fleet) -> None:
        for before, after in zip(self.fleet, heir, strict=True):
            assert len(after.mirror) == len(before.mirror)
            for prompt in self.prompts.values():
                matched = before.mirror.match(prompt.hashes)
                assert after.mirror.match(prompt.hashes) == matched
                assert after.mirror.holds_answer(prompt.hashes[-1]) == before.mirror.holds_answer(prompt.hashes[-1])
                anchor = self.fleet.index.turns.deepest(prompt, matched)
                assert heir.index.turns.deepest(prompt, matched) == anchor

    def books_balance(self, heir: Fleet, limit_bytes: int) -> None:
        blocks, links = sum(len(replica.mirror) for replica in heir), len(heir.index.turns) + len(heir.index.homes)
        assert heir.index.size_bytes == blocks * ENTRY_BYTES + links * LINK_BYTES <= limit_bytes
        for replica in heir:
            assert (replica.ledger.streams, replica.mirror.held_bytes) == (0, 0)

    def teardown(self) -> None:
        """What was restored can be used up: nothing is left over when all is evicted."""
        for ticket in self.open:
            self.fleet.settle(ticket, Outcome(OutcomeKind.DIED), self.now)
        for replica in self.fleet:
            self.fleet.index.evict_unused_since(replica.mirror, 1 << 62)
            assert (len(replica.mirror), replica.mirror.idle_bytes, replica.mirror.held_bytes) == (0, 0, 0)


def after_order(fleet: Fleet) -> list[tuple[int, object]]:
    """Homes in the order in which they are forgotten."""
    old, young = fleet.index.homes.halves()
    return [*old.items(), *young.items()]


Restarts.TestCase.settings = runs(80)
TestRestarts = Restarts.TestCase
