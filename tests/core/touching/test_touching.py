"""Which session is touched: a tiny world of one replica, whose cache holds three sessions."""

from __future__ import annotations

import pytest

from router.core.fleet import Fleet
from router.core.ticket import Ticket
from router.core.touching.offers import NEAR_RATIO
from router.core.touching.touching import LEAST_PREFILL_S, Touch, Touching
from router.core.types import Outcome, OutcomeKind, Usage
from tests.core.worlds import BLOCK, chat

BLOCKS = 16
"""Of each session: 2,048 tokens, a quarter of a second at 8,000 a second."""
SIZE_BYTES = 100_000


class World:
    """One replica, as the router sees it; every request is answered at once."""

    def __init__(self, keep_bytes: int = 1 << 20, rate: float = 8_000.0) -> None:
        self.fleet = Fleet(prior_tokens_per_s=rate)
        self.replica = self.fleet.add("r0")
        self.touching: Touching[str] = Touching(self.fleet, keep_bytes, 0.02, 16 << 20)

    def send(self, name: str, now: float, *later: str) -> Ticket:
        messages = [("user", f"{name} {number} " + BLOCK[:500].decode()) for number in range(BLOCKS)]
        for text in later:
            messages += [("assistant", "yes"), ("user", text)]
        ticket = self.fleet.route(chat(*messages), now)
        self.touching.sent(ticket, name, SIZE_BYTES, now)
        return ticket

    def end(self, ticket: Ticket, now: float, reason: str = "tool_calls") -> None:
        usage = Usage(None, None, 4, reason)
        settlement = self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), now)
        self.touching.settled(ticket, settlement, usage, now)

    def ask(self, name: str, now: float, *later: str, reason: str = "tool_calls") -> Ticket:
        ticket = self.send(name, now, *later)
        self.end(ticket, now, reason)
        return ticket

    def room_for(self, sessions: float) -> None:
        mirror = self.replica.mirror
        mirror.capacity_bytes = mirror.idle_bytes / self.sessions * sessions

    @property
    def sessions(self) -> int:
        return len(self.touching.shelf)

    def due(self, now: float) -> str | None:
        offer = self.touching.due(self.replica, now)
        return None if offer is None else offer.kept.body

    def touch(self, now: float) -> Touch[str]:
        offer = self.touching.due(self.replica, now)
        assert offer is not None
        touch = self.touching.begin(offer, now)
        assert touch is not None
        return touch


def full(late: str = "stop", early: str = "tool_calls") -> World:
    """A full cache: `a` waits for a tool since 0 s, `b` and `c` have been given an answer since then."""
    world = World()
    world.ask("a", 0.0, reason=early)
    world.ask("b", 1.0, reason=late)
    world.ask("c", 2.0, reason=late)
    world.room_for(3)
    return world


def test_nothing_is_due_while_nothing_is_evicted() -> None:
    world = full()
    world.replica.mirror.capacity_bytes *= 2
    assert world.due(60.0) is None


def test_the_session_at_the_end_of_the_line_is_due_where_it_is_likelier_to_return_than_others() -> None:
    world = full()
    pace = world.touching.offers.pace(world.replica)
    pace.saw(0.0, 29.0)
    assert world.due(30.0) == "a"
    pace.tail_chance = 1.0
    assert world.due(31.0) is None, "what would go instead is as likely to be used"


def test_it_is_due_only_near_its_end() -> None:
    world = full()
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    mirror = world.replica.mirror
    age_s = mirror.eviction_age_s(30.0)
    assert age_s == 30.0
    near = [kept.body for kept in world.touching.shelf.on("r0") if kept.used_s <= 30.0 - age_s * (1 - NEAR_RATIO)]
    assert near == ["a", "b", "c"]
    assert world.due(30.0) == "a"


def test_one_at_a_time_and_not_while_there_is_work() -> None:
    world = full()
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    world.room_for(4)
    busy = world.send("d", 29.5)
    assert world.due(30.0) is None, "a prefill is under way"
    world.end(busy, 29.6)
    touch = world.touch(30.0)
    assert world.due(30.1) is None
    world.touching.end(touch, 30.02, served=True, keep=True)


def test_a_touch_renews_its_blocks_and_is_in_no_books() -> None:
    world = full()
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    replica, returns = world.replica, world.fleet.returns
    before = (replica.recent.requests(30.0), replica.ledger.streams, returns.away, replica.last_chosen)
    touch = world.touch(30.0)
    assert replica.mirror.held_bytes == touch.kept.ends_bytes[-1]
    world.touching.end(touch, 30.02, served=True, keep=True)
    assert replica.mirror.held_bytes == 0
    oldest = replica.mirror.oldest()
    assert oldest is not None
    assert oldest.stamp == 1_000, "b is next"
    assert (replica.recent.requests(30.0), replica.ledger.streams, returns.away, replica.last_chosen) == before
    assert world.touching.profit.spent_s == pytest.approx(0.02)
    assert touch.kept.touches == 1


def test_a_hit_that_there_would_not_have_been_is_counted() -> None:
    world = full()
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    world.touching.end(world.touch(30.0), 30.02, served=True, keep=True)
    world.ask("d", 31.0, reason="stop")
    back = world.ask("a", 32.0, "go on")
    profit = world.touching.profit
    assert back.lease is not None
    assert back.lease.fresh_from == BLOCKS
    assert (profit.hits, profit.misses) == (1, 0)
    whole_s = world.replica.prefill.seconds(back.decision.prompt_tokens)
    assert 0.8 * whole_s < profit.saved_s < whole_s


def test_a_miss_that_there_would_not_have_been_is_counted() -> None:
    world = full()
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    world.touching.end(world.touch(30.0), 30.02, served=True, keep=True)
    world.ask("d", 31.0, reason="stop")
    world.ask("b", 32.0, "go on")
    profit = world.touching.profit
    assert (profit.hits, profit.misses) == (0, 1)
    assert profit.lost_s > 0.1
    assert profit.profit_s < 0


def test_without_touches_there_is_nothing_to_count() -> None:
    world = full()
    for second, name in enumerate("dabcabd"):
        world.ask(name, 40.0 + second, "go on")
    profit = world.touching.profit
    assert (profit.hits, profit.misses, profit.profit_s) == (0, 0, 0.0)


def test_a_request_ends_the_touch_of_its_replica_once() -> None:
    world = full()
    told: list[tuple[str, float]] = []
    world.touching.interrupt = lambda touch, now: told.append((touch.kept.body, now))
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    touch = world.touch(30.0)
    world.send("d", 30.01)
    world.send("e", 30.02)
    assert told == [("a", 30.01)]
    world.touching.end(touch, 30.03, served=False, keep=True)
    assert touch.kept.touches == 0
    assert not world.touching.under_way


def test_a_session_that_is_back_is_kept_no_more() -> None:
    world = full()
    ticket = world.send("a", 5.0, "go on")
    assert "a" not in [kept.body for kept in world.touching.shelf.on("r0")]
    world.end(ticket, 5.1)
    assert [kept.body for kept in world.touching.shelf.on("r0")] == ["b", "c", "a"]


def test_bodies_stay_within_their_bounds_and_the_least_worth_goes() -> None:
    world = World(keep_bytes=3 * SIZE_BYTES)
    world.ask("a", 0.0, reason="stop")
    world.ask("b", 1.0)
    world.ask("c", 2.0)
    world.ask("d", 3.0)
    assert world.touching.kept_bytes <= 3 * SIZE_BYTES
    assert "a" not in [kept.body for kept in world.touching.shelf.on("r0")]
    assert "d" in [kept.body for kept in world.touching.shelf.on("r0")]


def test_the_same_ticket_is_no_news() -> None:
    world = World()
    ticket = world.send("a", 0.0)
    world.touching.sent(ticket, "a", SIZE_BYTES, 0.1)
    world.end(ticket, 0.2)
    kept = list(world.touching.shelf.on("r0"))
    assert world.touching.kept_bytes == sum(one.size_bytes for one in kept)
    assert len(kept) == 1


def test_what_is_computed_fast_is_not_kept() -> None:
    world = World(rate=BLOCKS * 128 / LEAST_PREFILL_S * 2)
    world.ask("a", 0.0)
    assert world.touching.kept_bytes == 0


def test_who_can_not_come_back_any_more_is_given_up() -> None:
    world = full()
    expires_s = next(world.touching.shelf.on("r0")).expires_s
    world.replica.mirror.capacity_bytes *= 2
    assert world.sessions == 3
    world.due(max(expires_s, 20_000.0))
    assert world.sessions == 0


def test_what_was_evicted_is_given_up() -> None:
    world = full()
    world.ask("d", 10.0)
    world.due(11.0)
    assert "a" not in [kept.body for kept in world.touching.shelf.on("r0")]


def test_a_replica_that_leaves_is_forgotten() -> None:
    world = full()
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    touch = world.touch(30.0)
    world.fleet.remove("r0")
    world.touching.forget("r0")
    world.touching.end(touch, 31.0, served=False, keep=True)
    assert world.touching.kept_bytes == 0
    assert not world.touching.under_way


def test_a_restart_empties_what_would_be_there_as_well() -> None:
    world = full()
    world.touching.offers.pace(world.replica).saw(0.0, 29.0)
    world.touching.end(world.touch(30.0), 30.02, served=True, keep=True)
    world.fleet.forget_residency("r0")
    world.ask("b", 32.0, "go on")
    assert (world.touching.profit.hits, world.touching.profit.misses) == (0, 0)
