"""Books of what would be there without touches: the mirror itself, while nothing is touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.fleet import Fleet
from router.core.leases import Lease
from router.core.ticket import Ticket
from router.core.touching.shadows import Shadows
from router.core.types import Outcome, OutcomeKind, Usage
from tests.core.worlds import BLOCK, chat

NAMES = "abcde"
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 8), st.booleans()), max_size=30)
"""Whose request, how many blocks, and whether the oldest one under way ends after it."""


class Books:
    """One replica with room for twelve blocks, its mirror and its shadow."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.replica = self.fleet.add("r0")
        self.replica.mirror.capacity_bytes = 12 * 512.0
        self.shadows = Shadows(1 << 20)
        self.open: list[tuple[Ticket, Lease]] = []

    def ask(self, name: str, blocks: int, now: float) -> None:
        messages = [("user", f"{name}{number}" + BLOCK.decode()) for number in range(blocks)]
        self.shadows.of(self.replica)
        ticket = self.fleet.route(chat(*messages), now)
        prompt = ticket.request.prompt
        assert prompt is not None
        lease = self.shadows.hold(self.replica, prompt)
        assert lease is not None
        assert ticket.lease is not None
        assert lease.fresh_from == ticket.lease.fresh_from
        self.open.append((ticket, lease))

    def end(self, now: float) -> None:
        ticket, lease = self.open.pop(0)
        settlement = self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, Usage(None, None, 20, "stop")), now)
        self.shadows.release(self.replica, lease, now, settlement.computed, settlement.answer_bytes, 0)


@given(STEPS)
def test_without_touches_they_hold_what_the_mirror_holds(steps: list[tuple[str, int, bool]]) -> None:
    books = Books()
    for second, (name, blocks, ends) in enumerate(steps):
        books.ask(name, blocks, float(second))
        if ends:
            books.end(second + 0.5)
    while books.open:
        books.end(100.0)
    shadow, mirror = books.shadows.of(books.replica), books.replica.mirror
    assert (len(shadow), shadow.idle_bytes, shadow.held_bytes) == (len(mirror), mirror.idle_bytes, mirror.held_bytes)


def test_one_that_is_begun_late_begins_as_the_mirror_is() -> None:
    books = Books()
    for second in range(4):
        books.ask(NAMES[second], 2, float(second))
        books.end(second + 0.5)
    late = Shadows(1 << 20).of(books.replica)
    assert len(late) == len(books.replica.mirror)
    assert late.idle_bytes == books.replica.mirror.idle_bytes
    assert late.oldest_stamp() == books.replica.mirror.oldest_stamp()


def test_a_restart_and_a_new_replica_of_the_same_name_begin_empty() -> None:
    books = Books()
    books.ask("a", 4, 0.0)
    books.end(0.5)
    books.fleet.forget_residency("r0")
    assert len(books.shadows.of(books.replica)) == 0
    books.ask("a", 4, 1.0)
    books.end(1.5)
    books.fleet.remove("r0")
    assert len(books.shadows.of(books.fleet.add("r0"))) == 0
