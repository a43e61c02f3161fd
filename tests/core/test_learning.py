"""What an engine's report of cached tokens says of what it has evicted."""

from __future__ import annotations

import pytest

from router.core.fleet import Fleet
from router.core.types import RoutingRequest
from tests.core.prompts import Said, said
from tests.core.worlds import answered, chat, fleet_of

OTHERS: Said = [("system", "Something else altogether. " * 200)]
LONG: Said = [("system", "You are helpful. " * 600)]


def turn(turns: int, name: str, opening: Said = LONG) -> RoutingRequest:
    return chat(*said(turns, name, opening))


def left_of_an_older_chat(fleet: Fleet, request: RoutingRequest, fewer_tokens: int) -> float:
    """Share of it that is still believed to be held once the replica had so many tokens fewer of the request."""
    predicted = fleet.explain(request, 10.0).matched_tokens
    assert predicted > 1000
    before = fleet.explain(turn(2, "x", OTHERS), 10.0).matched_tokens
    answered(fleet, request, 10.0, cached=max(0, predicted - fewer_tokens), answer_tokens=1)
    return fleet.explain(turn(2, "x", OTHERS), 11.0).matched_tokens / before


@pytest.fixture
def fleet() -> Fleet:
    """One replica, which has answered an older chat, x, and then another one, a."""
    fleet = fleet_of(1)
    answered(fleet, turn(1, "x", OTHERS), 1.0)
    answered(fleet, turn(1, "a"), 2.0, answer_tokens=1)
    return fleet


def test_a_shared_opening_is_an_estimate_and_a_few_blocks_less_are_no_eviction(fleet: Fleet) -> None:
    assert left_of_an_older_chat(fleet, turn(1, "b"), fewer_tokens=48) == 1
    assert left_of_an_older_chat(fleet, turn(1, "c"), fewer_tokens=500) == 1


def test_much_less_of_a_shared_opening_is_one(fleet: Fleet) -> None:
    assert left_of_an_older_chat(fleet, turn(1, "b"), fewer_tokens=1000) == 0


def test_behind_a_turns_end_the_count_is_exact(fleet: Fleet) -> None:
    assert left_of_an_older_chat(fleet, turn(2, "a"), fewer_tokens=32) == 1
    assert left_of_an_older_chat(fleet, turn(3, "a"), fewer_tokens=48) == 0


def test_nothing_of_it_is_one_in_any_case(fleet: Fleet) -> None:
    assert left_of_an_older_chat(fleet, turn(1, "b"), fewer_tokens=1_000_000) == 0
