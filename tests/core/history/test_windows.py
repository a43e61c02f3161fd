import tracemalloc
from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.history.windows import COARSE_S, FINE_S, Rolling, Step, packed

START_S = 1_700_000_100.0
"""The begin of a fine step and of a coarse one."""

SPANS_S = {"5m": 300, "1h": 3_600, "24h": 86_400}

gaps_s = st.one_of(st.floats(0, 20), st.floats(0, 700), st.sampled_from([0.0, 10.0, 290.0, 300.0, 3_600.0, 86_400.0]))
events = st.lists(st.tuples(gaps_s, st.integers(0, 5), st.integers(1, 1 << 40)), max_size=60)


def count(rolling: Rolling, key: int, number: int, now: float) -> None:
    rolling.roll(now)
    rolling.counts[key] += number


def summed(steps: list[Step]) -> dict[int, int]:
    sums: Counter[int] = Counter()
    for step in steps:
        sums.update(step.counts())
    return dict(sums)


def some(counts: dict[int, int]) -> dict[int, int]:
    return {key: value for key, value in counts.items() if value}


def test_a_window_has_what_was_counted_in_it_and_nothing_older() -> None:
    rolling = Rolling(START_S)
    count(rolling, 1, 3, START_S)
    count(rolling, 1, 4, START_S + 289)
    assert [rolling.totals(name) for name in SPANS_S] == [{1: 7}] * 3
    rolling.roll(START_S + 299.9)
    assert rolling.totals("5m") == {1: 7}
    rolling.roll(START_S + 300)
    assert [rolling.totals(name) for name in SPANS_S] == [{1: 4}, {1: 7}, {1: 7}]
    rolling.roll(START_S + 3_600)
    assert [rolling.totals(name) for name in SPANS_S] == [{}, {1: 4}, {1: 7}]
    rolling.roll(START_S + 86_399.9)
    assert rolling.totals("24h") == {1: 7}
    rolling.roll(START_S + 86_400)
    assert rolling.totals("24h") == {}


def test_steps_begin_at_round_times_and_empty_ones_are_left_out() -> None:
    rolling = Rolling(START_S + 3)
    for after_s in (3, 9, 10, 45):
        count(rolling, 7, 1, START_S + after_s)
    assert [(step.number * FINE_S - START_S, step.counts()) for step in rolling.steps("5m")] == [
        (0, {7: 2}), (10, {7: 1}), (40, {7: 1})
    ]  # fmt: skip
    assert [(step.number * COARSE_S - START_S, step.counts()) for step in rolling.steps("24h")] == [(0, {7: 4})]
    rolling.roll(START_S + 10_000)
    assert not rolling.steps("5m")
    assert len(rolling.steps("24h")) == 1


def test_time_that_stands_still_or_goes_back_closes_nothing() -> None:
    rolling = Rolling(START_S)
    count(rolling, 1, 1, START_S)
    count(rolling, 1, 1, START_S)
    count(rolling, 1, 1, START_S - 50)
    assert [step.counts() for step in rolling.steps("5m")] == [{1: 3}]


@given(events)
def test_windows_are_the_sums_of_their_steps_and_of_all_that_lies_in_them(told: list[tuple[float, int, int]]) -> None:
    now, rolling, all_counted = START_S, Rolling(START_S), []
    for gap_s, key, number in told:
        now += gap_s
        count(rolling, key, number, now)
        all_counted.append((now, key, number))
        for name, span_s in SPANS_S.items():
            step_s = rolling.windows[name].step_s
            first = now // step_s * step_s - span_s + step_s
            inside: Counter[int] = Counter()
            for at_s, inner, amount in all_counted:
                inside[inner] += amount * (at_s >= first)
            assert some(rolling.totals(name)) == some(dict(inside)) == summed(rolling.steps(name))
            assert span_s - step_s <= now - first < span_s
            assert len(rolling.steps(name)) <= span_s / step_s


@given(events, st.one_of(st.floats(0, 30), st.floats(0, 100_000)))
def test_another_goes_on_where_one_ended(told: list[tuple[float, int, int]], away_s: float) -> None:
    now, first = START_S, Rolling(START_S)
    for gap_s, key, number in told:
        now += gap_s
        count(first, key, number, now)
    fine, coarse = first.steps("1h"), first.steps("24h")
    now += away_s
    second = Rolling(now)
    second.resume(fine, coarse, now)
    for _ in range(3):
        first.roll(now)
        second.roll(now)
        for name in SPANS_S:
            assert some(second.totals(name)) == some(first.totals(name))
            assert second.steps(name) == first.steps(name)
        count(first, 3, 5, now)
        count(second, 3, 5, now)
        now += 155


@pytest.mark.parametrize("numbers", [[2, 1], [1, 1], [-5], [10**9]])
def test_steps_out_of_order_or_of_the_future_are_refused(numbers: list[int]) -> None:
    steps = [packed(number, {1: 1}) for number in numbers]
    with pytest.raises(ValueError, match="step"):
        Rolling(START_S).resume(steps, [], START_S)


@given(st.dictionaries(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)))
def test_packed_steps_keep_all_that_is_not_0(counts: dict[int, int]) -> None:
    assert packed(3, counts).counts() == some(counts)


def test_numbers_of_0_in_a_step_do_no_harm() -> None:
    rolling = Rolling(START_S)
    number = int(START_S // FINE_S)
    steps = [Step(number - back, array("I", [1]), array("I", [0])) for back in (2, 1)]
    rolling.resume(steps, [], START_S)
    rolling.roll(START_S + 300)
    assert some(rolling.totals("5m")) == {}


def test_a_busy_day_takes_the_memory_that_is_said() -> None:
    """400 numbers a step: all series of the fleet, and some models and replicas."""
    now, rolling = START_S, Rolling(START_S)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(360 + 30):
            for key in range(400):
                count(rolling, key * 7, 100_000 + key, now)
            now += FINE_S
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    steps = len(rolling.steps("1h")) + len(rolling.steps("24h"))
    assert steps > 370
    assert used < steps * (400 * 8 + 500) + 200_000
