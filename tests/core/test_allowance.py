"""What a key may do: never more than its limit in any minute, and counts that come back to zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.allowance import (
    PART_S,
    RETRY_RUNNING_S,
    SLOT_S,
    WINDOW_S,
    Allowance,
    Elsewhere,
    KeyLimits,
    Sliding,
)

steps = st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=80)


@given(steps, st.integers(1, 6))
def test_no_minute_ever_has_more_requests_than_the_limit(waits: list[float], limit: int) -> None:
    used, now, admitted = Allowance(KeyLimits(requests_per_minute=limit)), 1000.0, []
    for wait_s in waits:
        now += wait_s
        if used.admit(now) is None:
            admitted.append(now)
            used.finish(now, 0)
    for moment_s in admitted:
        assert sum(moment_s <= other_s < moment_s + WINDOW_S for other_s in admitted) <= limit


@given(steps, st.integers(1, 6))
def test_a_request_refused_passes_after_the_time_it_was_told_and_not_much_later_than_it_could(
    waits: list[float], limit: int
) -> None:
    used, now = Allowance(KeyLimits(requests_per_minute=limit)), 1000.0
    admitted: list[float] = []
    for wait_s in waits:
        now += wait_s
        denial = used.admit(now)
        if denial is not None:
            assert denial.kind == "requests"
            oldest_s = sorted(admitted)[-limit]
            assert denial.wait_s <= oldest_s + WINDOW_S + SLOT_S - now + 1e-6
            now += denial.wait_s
            assert used.admit(now) is None
        admitted.append(now)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 500), st.floats(0, 20)), max_size=60))
def test_counts_come_back_to_zero(events: list[tuple[bool, int, float]]) -> None:
    used, now = Allowance(KeyLimits(20, 2_000, 5)), 0.0
    for comes, tokens, wait_s in events:
        now += wait_s
        if comes:
            used.admit(now)
        elif used.running:
            used.finish(now, tokens)
        assert 0 <= used.running <= 5
        assert used.requests.total(now) <= 20
    while used.running:
        used.finish(now, 7)
    assert used.unused(now + WINDOW_S + SLOT_S)


def test_a_request_that_ends_twice_is_a_mistake() -> None:
    used = Allowance(KeyLimits())
    assert used.admit(0.0) is None
    used.finish(0.0, 1)
    with pytest.raises(RuntimeError):
        used.finish(0.0, 1)


def test_requests_at_once_are_limited_and_let_in_again_when_one_ends() -> None:
    used = Allowance(KeyLimits(concurrent_requests=2))
    assert used.admit(0.0) is None
    assert used.admit(0.0) is None
    denial = used.admit(0.0)
    assert denial == ("concurrent requests", 2, RETRY_RUNNING_S)
    used.finish(1.0, 0)
    assert used.admit(1.0) is None


def test_tokens_are_charged_at_the_end_and_the_next_request_waits_for_them() -> None:
    used = Allowance(KeyLimits(tokens_per_minute=100))
    assert used.admit(0.0) is None
    assert used.admit(0.0) is None, "nothing is charged yet"
    used.finish(10.0, 90)
    assert used.admit(10.0) is None
    used.finish(20.0, 30)
    denial = used.admit(20.0)
    assert denial is not None
    assert (denial.kind, denial.limit) == ("tokens", 100)
    assert denial.wait_s == 10 + SLOT_S + WINDOW_S - 20, "until the first 90 have left"


def test_how_a_limit_stands() -> None:
    used = Allowance(KeyLimits(requests_per_minute=3))
    assert used.token_standing(0.0) is None
    assert used.request_standing(0.0) == (3, 3, 0.0)
    used.admit(0.0)
    used.admit(30.0)
    assert used.request_standing(30.0) == (3, 1, SLOT_S + WINDOW_S)
    assert used.request_standing(WINDOW_S + SLOT_S) == (3, 2, 30.0)


def test_what_other_routers_let_in_counts_too() -> None:
    used = Allowance(KeyLimits(requests_per_minute=5, concurrent_requests=3))
    used.elsewhere["b"] = Elsewhere(Sliding.of_parts([2, 1], 100.0), Sliding(), running=2)
    assert used.admit(100.0) is None
    assert used.admit(100.0) == ("concurrent requests", 3, RETRY_RUNNING_S)
    used.elsewhere["b"] = used.elsewhere["b"]._replace(running=0)
    assert used.admit(100.0) is None
    denial = used.admit(100.0)
    assert denial is not None
    assert denial.wait_s == pytest.approx(WINDOW_S - PART_S + SLOT_S), "the oldest of the other router's leaves first"


@given(st.lists(st.tuples(st.floats(0, 15), st.integers(1, 9)), max_size=40))
def test_counts_told_to_others_are_theirs_and_are_not_forgotten_too_early(events: list[tuple[float, int]]) -> None:
    sliding, now = Sliding(), 500.0
    for wait_s, count in events:
        now += wait_s
        sliding.add(now, count)
    total = sliding.total(now)
    told = Sliding.of_parts(sliding.parts(now), now)
    assert told.total(now) == total
    for later_s in (1.0, 17.0, 42.0, 59.0):
        assert told.total(now + later_s) >= sliding.total(now + later_s)
    assert told.total(now + WINDOW_S + SLOT_S) == 0
