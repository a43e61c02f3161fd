"""The state of Redis as a table, and the streaks that move it between up and slow."""

from __future__ import annotations

import pytest

from router.adapters.redis_store.state import PATIENCE, Condition, State

UP, SLOW, REFUSING, DOWN = State.UP, State.SLOW, State.REFUSING, State.DOWN
EVENTS = ("quick", "late", "refused", "lost")

TABLE = {
    UP: (UP, UP, REFUSING, DOWN),
    SLOW: (SLOW, SLOW, REFUSING, DOWN),
    REFUSING: (UP, SLOW, REFUSING, DOWN),
    DOWN: (UP, SLOW, REFUSING, DOWN),
}
"""State -> the one after each of the events, in their order, when it comes once."""


def happens(condition: Condition, event: str, times: int = 1) -> None:
    for _ in range(times):
        if event == "quick":
            condition.quick()
        else:
            getattr(condition, event)(f"because of {event}")


def condition_in(state: State) -> Condition:
    condition = Condition()
    happens(condition, {UP: "quick", SLOW: "late", REFUSING: "refused", DOWN: "lost"}[state])
    assert condition.state is state
    return condition


def test_it_is_down_until_something_is_heard() -> None:
    condition = Condition()
    assert (condition.state, condition.cause) == (DOWN, "not connected yet")


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", State)
def test_every_event_in_every_state(state: State, event: str) -> None:
    condition = condition_in(state)
    happens(condition, event)
    assert condition.state is TABLE[state][EVENTS.index(event)]


@pytest.mark.parametrize(("state", "event", "then"), [(UP, "late", SLOW), (SLOW, "quick", UP)])
def test_only_several_in_a_row_tell_up_from_slow(state: State, event: str, then: State) -> None:
    condition = condition_in(state)
    happens(condition, event, PATIENCE - 1)
    assert condition.state is state
    happens(condition, event)
    assert condition.state is then


def test_one_quick_answer_among_late_ones_begins_the_count_anew() -> None:
    condition = condition_in(UP)
    for _ in range(3):
        happens(condition, "late", PATIENCE - 1)
        happens(condition, "quick")
    assert condition.state is UP
    happens(condition, "late", PATIENCE)
    assert condition.state is SLOW


def test_one_late_answer_among_quick_ones_begins_the_count_anew() -> None:
    condition = condition_in(SLOW)
    for _ in range(3):
        happens(condition, "quick", PATIENCE - 1)
        happens(condition, "late")
    assert condition.state is SLOW
    happens(condition, "quick", PATIENCE)
    assert condition.state is UP


@pytest.mark.parametrize("between", ["refused", "lost"])
def test_a_streak_does_not_outlive_its_state(between: str) -> None:
    condition = condition_in(UP)
    happens(condition, "late", PATIENCE - 1)
    happens(condition, between)
    happens(condition, "quick")
    happens(condition, "late", PATIENCE - 1)
    assert condition.state is UP


def test_the_cause_is_the_one_that_brought_the_state_about() -> None:
    condition = condition_in(UP)
    condition.lost("no route")
    condition.lost("connection refused")
    assert (condition.state, condition.cause) == (DOWN, "no route")
    condition.refused("OOM")
    assert (condition.state, condition.cause) == (REFUSING, "OOM")
    happens(condition, "quick")
    assert (condition.state, condition.cause) == (UP, "answers in time")
    for number in range(PATIENCE):
        condition.late(f"{number}")
    assert (condition.state, condition.cause) == (SLOW, f"{PATIENCE - 1}")
