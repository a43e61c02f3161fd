"""Tokens lost and to what: a tiny fleet whose engines report what the test wants."""

from __future__ import annotations

import pytest

from router.core.fleet import Fleet
from router.core.misses.account import LEAST_LOST_BLOCKS, account, served
from router.core.misses.sessions import Sessions
from router.core.misses.types import Cause, TurnAccount
from router.core.tokens import ESTIMATED_RATIO
from router.core.types import EngineReport, Outcome, OutcomeKind, Prompt, RoutingRequest, Usage
from tests.core.misses.turns import SYSTEM, Said, asks, chat, question
from tests.core.worlds import fleet_of

BLOCK = 16


class World:
    """A fleet, its memory of sessions, and a clock."""

    def __init__(self, replicas: int = 2) -> None:
        self.fleet: Fleet = fleet_of(replicas)
        self.sessions = Sessions(3)
        self.now = 0.0
        self.home = ""

    def turn(
        self,
        request: RoutingRequest,
        prompt_tokens: int | None = 1_000,
        cached: int | None = None,
        excluded: tuple[str, ...] = (),
    ) -> TurnAccount:
        """Serve a request and account for it. `cached`: as the engine reports."""
        self.now += 10.0
        ticket = self.fleet.route(request, self.now, excluded)
        prompt = prompt_of(request)
        seen = self.sessions.recognise(request, self.fleet.index.turns, self.now)
        assert seen is not None
        usage = Usage(prompt_tokens, cached, 10, "stop")
        turn = account(self.fleet, seen, prompt, ticket.decision, usage, excluded)
        assert ticket.lease is not None
        tokens = prompt_tokens or ticket.decision.prompt_tokens
        self.home = ticket.decision.replica
        self.now += 1.0
        self.sessions.learn(seen, tokens, prompt_tokens is not None, self.home, ticket.lease.epoch, self.now)
        self.fleet.first_byte(ticket, self.now)
        self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), self.now)
        return turn


def prompt_of(request: RoutingRequest) -> Prompt:
    assert request.prompt is not None
    return request.prompt


def test_a_turn_that_finds_all_of_its_history_loses_nothing() -> None:
    world = World()
    first = world.turn(asks(chat(1)), 1_000, 0)
    assert first.cause is Cause.FIRST_SEEN
    assert (first.history_tokens, first.lost_tokens, first.idle_s, first.number) == (0, 0, None, 1)
    second = world.turn(asks(chat(2)), 1_200, 992)
    assert (second.history_tokens, second.cached_tokens, second.lost_tokens) == (992, 992, 0)
    assert (second.cause, second.change, second.idle_s, second.number) == (None, None, 10.0, 2)


@pytest.mark.parametrize("missing", [0, BLOCK, LEAST_LOST_BLOCKS * BLOCK])
def test_less_than_two_blocks_are_not_lost(missing: int) -> None:
    world = World()
    world.turn(asks(chat(1)), 1_000, 0)
    turn = world.turn(asks(chat(2)), 1_200, 992 - missing)
    assert turn.lost_tokens == (missing if missing >= LEAST_LOST_BLOCKS * BLOCK else 0)
    assert turn.cause is (Cause.EVICTED if turn.lost_tokens else None)


def test_what_could_have_been_cached_is_never_more_than_the_prompt_but_its_last_token() -> None:
    world = World()
    world.turn(asks(chat(3)), 1_600, 0)
    again = world.turn(asks(chat(3)), 1_600, 1_584)
    assert (again.number, again.history_tokens, again.lost_tokens) == (1, 1_584, 0)


def test_without_a_report_what_was_believed_counts() -> None:
    world = World()
    world.turn(asks(chat(1)), None)
    turn = world.turn(asks(chat(2)), None)
    assert (turn.lost_tokens, turn.cause) == (0, None)
    assert turn.cached_tokens >= turn.history_tokens > 0


def test_an_estimated_history_is_lost_only_where_much_of_it_is() -> None:
    """The first engine does not report; its successor does, and it counts fewer tokens than were estimated."""
    for cached, is_lost in ((0.8, False), (0.7, True)):
        world = World()
        first = world.turn(asks(chat(2)), None)
        assert first.number == 1
        estimate = world.turn(asks(chat(2)), None).history_tokens
        turn = world.turn(asks(chat(3)), estimate * 2, int(estimate * cached))
        assert (turn.lost_tokens > 0) is is_lost
    assert 1 - 0.8 < ESTIMATED_RATIO < 1 - 0.7


def test_the_larger_part_names_the_cause() -> None:
    """The client edits its last answer but one: most is kept, and then the replica evicts that, too."""
    said: Said = [*chat(8)[:14], ("assistant", "Quite another answer. " * 8), *chat(9)[15:]]
    for cached, cause in ((800, Cause.EDITED), (0, Cause.EVICTED)):
        world = World(1)
        world.turn(asks(chat(8)), 1_000, 0)
        turn = world.turn(asks(said), 1_200, cached)
        assert turn.change is not None
        assert turn.change.cause is Cause.EDITED
        assert turn.change.kept_tokens > 800
        assert (turn.cause, turn.lost_tokens) == (cause, 992 - cached)


def test_a_restart_is_told_from_an_eviction() -> None:
    world = World()
    world.turn(asks(chat(1)), 1_000, 0)
    world.fleet.forget_residency(world.home)
    assert world.turn(asks(chat(2)), 1_200, 0).cause is Cause.RESTARTED
    assert world.turn(asks(chat(3)), 1_400, 0).cause is Cause.EVICTED, "since then it has not restarted"


def test_a_spill_is_one_only_if_the_home_still_had_it() -> None:
    for emptied in (False, True):
        world = World()
        world.turn(asks(chat(3)), 1_000, 0)
        home = world.home
        if emptied:
            world.fleet.index.evict_unused_since(world.fleet[home].mirror, 1 << 60)
        world.fleet.observe_engine(home, EngineReport(waiting=1_000, block_tokens=BLOCK, start_time_s=1.0))
        turn = world.turn(asks(chat(4)), 1_200, 0)
        assert world.home != home
        assert turn.cause is (Cause.EVICTED if emptied else Cause.SPILLED)


def test_a_home_that_failed_first_or_is_gone_is_a_failover() -> None:
    world = World(3)
    world.turn(asks(chat(1)), 1_000, 0)
    assert world.turn(asks(chat(2)), 1_200, 0, excluded=(world.home,)).cause is Cause.FAILOVER
    world.fleet.remove(world.home)
    assert world.turn(asks(chat(3)), 1_400, 0).cause is Cause.FAILOVER


def test_a_drained_home() -> None:
    world = World()
    world.turn(asks(chat(1)), 1_000, 0)
    world.fleet[world.home].health.drain(world.now)
    assert world.turn(asks(chat(2)), 1_200, 0).cause is Cause.DRAINED


def test_a_home_that_is_away_and_had_evicted_it_before_is_not_to_blame() -> None:
    world = World()
    world.turn(asks(chat(1)), 1_000, 0)
    home = world.fleet[world.home]
    world.fleet.index.evict_unused_since(home.mirror, 1 << 60)
    home.health.drain(world.now)
    assert world.turn(asks(chat(2)), 1_200, 0).cause is Cause.EVICTED


def test_a_first_turn_on_a_replica_without_the_shared_prefix_is_spread() -> None:
    world = World()
    shared = ("system", SYSTEM[1] * 4)
    world.turn(asks([shared, question(1)]), 1_000, 0)
    turn = world.turn(asks([shared, question(2)]), 1_000, 0, excluded=())
    if turn.cause is not Cause.SPREAD:
        turn = world.turn(asks([shared, question(3)]), 1_000, 0)
    assert (turn.number, turn.cached_tokens) == (1, 0)
    assert turn.cause in (Cause.SPREAD, Cause.EVICTED)


def test_a_first_turn_ignores_what_a_session_header_adds_to_a_score() -> None:
    world = World()
    for number in (1, 2):
        turn = world.turn(asks(chat(1, start=number * 50), session="s"))
        assert (turn.number, turn.cause, turn.history_tokens) == (1, Cause.FIRST_SEEN, turn.cached_tokens)


@pytest.mark.parametrize(
    ("kind", "status", "began", "expected"),
    [
        (OutcomeKind.COMPLETED, 200, False, True),
        (OutcomeKind.COMPLETED, 400, True, False),
        (OutcomeKind.CLIENT_LEFT, 200, True, True),
        (OutcomeKind.CLIENT_LEFT, None, False, False),
        (OutcomeKind.DIED, 200, True, True),
        (OutcomeKind.DIED, 200, False, False),
        (OutcomeKind.RESET, None, False, False),
        (OutcomeKind.BUSY, 503, False, False),
    ],
)
def test_which_ends_are_turns_is_what_the_fleet_calls_served(
    kind: OutcomeKind, status: int | None, began: bool, expected: bool
) -> None:
    fleet = fleet_of(1)
    ticket = fleet.route(asks(chat(1)), 0.0)
    if began:
        fleet.first_byte(ticket, 1.0)
    outcome = Outcome(kind, status)
    assert served(ticket, outcome) is expected
    assert fleet.settle(ticket, outcome, 2.0).served is expected
