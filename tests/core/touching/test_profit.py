"""The account of touches, and its switch."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.touching.profit import ALLOWED_LOSS_RATIO, LEAST_TOUCHES, REST_S, TRUST_S, WINDOW_S, Measured, Profit


def test_profit_is_what_is_left() -> None:
    profit = Profit()
    profit.saved(5.0, 10.0)
    profit.lost(1.5, 10.0)
    profit.spent(0.5, 10.0)
    assert profit.profit_s == 3.0
    assert profit.balance_s(10.0) == 3.0
    assert profit.balance_s(10.0 + WINDOW_S) == pytest.approx(3.0 * exp(-1))
    assert (profit.hits, profit.misses) == (1, 1)


def losing(touches: int, seconds: float) -> Profit:
    profit = Profit()
    for _ in range(touches):
        profit.spent(seconds, 0.0)
    return profit


def test_a_loss_turns_it_off_for_a_while_and_it_tries_again() -> None:
    profit = losing(LEAST_TOUCHES, ALLOWED_LOSS_RATIO * WINDOW_S / LEAST_TOUCHES + 0.01)
    assert profit.judge(1, 0.0)
    assert not profit.judge(1, 0.0), "once"
    assert profit.resting(REST_S - 1)
    assert not profit.resting(REST_S)
    assert not profit.judge(1, REST_S), "it begins anew"
    assert profit.times_off == 1


def test_few_touches_and_small_losses_are_not_judged() -> None:
    assert not losing(LEAST_TOUCHES - 1, 1.0).judge(1, 0.0)
    assert not losing(LEAST_TOUCHES, 0.01).judge(1, 0.0)
    assert not losing(LEAST_TOUCHES, ALLOWED_LOSS_RATIO * WINDOW_S / LEAST_TOUCHES + 0.01).judge(2, 0.0), "of a fleet"


def test_what_is_seen_corrects_what_is_expected() -> None:
    measured = Measured()
    assert measured.ratio == 1
    measured.add(8 * TRUST_S, 0.0, 0.0)
    assert measured.ratio == pytest.approx(1 / 9)
    measured.add(0.0, 8 * TRUST_S, 0.0)
    assert measured.ratio == 1


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100), st.floats(0, 1e5)), max_size=20))
def test_the_ratio_is_never_negative(rows: list[tuple[float, float, float]]) -> None:
    measured, now = Measured(), 0.0
    for expected_s, seen_s, later_s in rows:
        now += later_s
        measured.add(expected_s, seen_s, now)
        assert measured.ratio > 0
