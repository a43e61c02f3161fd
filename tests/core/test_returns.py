import json
from heapq import merge
from math import erf, inf, log, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.curves import BINS, CLASSES, EDGES_S, LAST_S, Curve, ReturnClass, published
from router.core.returns import HALF_LIFE_S, MAX_FOLLOWED, Returns

CALLS = ReturnClass(tool_calls=True, bucket=2, from_tool=True)
ANSWER = ReturnClass(tool_calls=False, bucket=2, from_tool=True)
CHATS = [ReturnClass(tool_calls=False, bucket=bucket, from_tool=False) for bucket in range(5)]


def true_chance(ratio: float, median_s: float, sigma: float, idle_s: float, within_s: float) -> float:
    def by(at_s: float) -> float:
        return ratio * 0.5 * (1 + erf(log(at_s / median_s) / (sigma * sqrt(2)))) if at_s > 0 else 0.0

    return (by(idle_s + within_s) - by(idle_s)) / (1 - by(idle_s))


def taught(kind: ReturnClass, minutes: float, every_s: float, ratio: float, median_s: float, sigma: float) -> Returns:
    """Return what is learnt of sessions that each end one turn, until the end of the minutes."""
    chance, returns, until_s = Random(7), Returns(), minutes * 60
    ends = [(at * every_s, "ended", at) for at in range(int(until_s / every_s))]
    backs = [(at_s + chance.lognormvariate(log(median_s), sigma), "came back", number) for at_s, _, number in ends]
    backs = [back for back in backs if chance.random() < ratio]
    for at_s, what, number in merge(ends, sorted(backs)):
        if at_s > until_s:
            break
        if what == "ended":
            returns.ended(number, kind, at_s)
        else:
            returns.came_back(number, at_s)
    return returns


def close_to(returns: Returns, kind: ReturnClass, truth: tuple[float, float, float], until_s: float) -> None:
    for idle_s in (0.0, 5.0, 30.0, 120.0, 600.0):
        for within_s in (5.0, 60.0, 300.0, 1_200.0):
            if idle_s + within_s <= until_s:
                expected = true_chance(*truth, idle_s, within_s)
                assert returns.chance(kind, idle_s, within_s) == pytest.approx(expected, abs=0.03), (idle_s, within_s)


@pytest.mark.parametrize(
    ("finish_reason", "turn", "from_tool", "kind"),
    [
        ("tool_calls", 1, False, (True, 0, False)),
        ("stop", 0, True, (False, 0, True)),
        (None, 2, False, (False, 1, False)),
        ("length", 3, False, (False, 2, False)),
        ("stop", 4, False, (False, 2, False)),
        ("stop", 5, False, (False, 3, False)),
        ("stop", 8, False, (False, 3, False)),
        ("stop", 9, False, (False, 4, False)),
        ("stop", 1_000_000, False, (False, 4, False)),
    ],
)
def test_turns_have_classes(finish_reason: str | None, turn: int, from_tool: bool, kind: tuple[object, ...]) -> None:
    assert ReturnClass.of(finish_reason, turn, from_tool) == kind
    assert ReturnClass.of(finish_reason, turn, from_tool) in CLASSES


def test_before_anything_is_seen_chances_are_those_that_were_published() -> None:
    returns = Returns()
    assert returns.chance(CALLS, 0, inf) == pytest.approx(0.99)
    assert returns.chance(CALLS, 0, 9) == pytest.approx(0.99 / 2, abs=0.01)
    assert returns.chance(ANSWER, 0, inf) == pytest.approx(0.87)
    assert returns.chance(ANSWER, 0, 183) == pytest.approx(0.87 / 2, abs=0.01)
    assert returns.chance(CHATS[0], 0, inf) == pytest.approx(0.25)
    assert returns.chance(CHATS[4], 0, inf) == pytest.approx(0.77)
    for kind in CHATS:
        assert returns.chance(kind, 0, 126) == pytest.approx(published(kind).returned_ratio / 2, abs=0.01)


def test_a_known_distribution_is_found() -> None:
    truth = (0.6, 40.0, 0.8)
    returns = taught(CHATS[1], 400, 5.0, *truth)
    close_to(returns, CHATS[1], truth, LAST_S)
    assert returns.chance(CHATS[1], 0, inf) == pytest.approx(0.6, abs=0.03)
    assert returns.chance(CHATS[0], 0, inf) == pytest.approx(0.25), "the other classes are as they were"


@pytest.mark.parametrize("minutes", [10, 20, 60])
def test_those_who_are_still_away_do_not_bias_it(minutes: int) -> None:
    truth = (0.7, 200.0, 1.2)
    returns = taught(CHATS[1], minutes, 0.1, *truth)
    close_to(returns, CHATS[1], truth, minutes * 60 * 0.6)


def test_who_never_returns_counts_as_that() -> None:
    returns = Returns()
    for number in range(2_000):
        returns.ended(number, CALLS, number * 1.0)
    returns.came_back(-1, 3 * LAST_S)
    assert returns.chance(CALLS, 0, inf) < 0.03
    assert returns.chance(CALLS, 100, 1_000) < 0.02


def test_a_session_counts_in_a_bin_when_the_bin_has_passed() -> None:
    returns = Returns()
    returns.ended(1, CALLS, 0.0)
    returns.ended(2, CALLS, 0.0)
    returns.ended(3, CALLS, 0.0)
    returns.came_back(1, 0.4)
    returns.came_back(3, 0.6)
    before = returns.chance(CALLS, 0, 0.5)
    assert sum(returns.state) == 0
    returns.came_back(-1, 1.0)
    row = returns.state[CLASSES.index(CALLS) * 2 * BINS :][: 2 * BINS]
    assert row[:3] == pytest.approx((3, 2, 0), rel=1e-3), "at risk up to 0.5 and 0.78 s; the third bin ends later"
    assert row[BINS : BINS + 3] == pytest.approx((1, 1, 0), rel=1e-3), "back in them"
    hazard = returns.chance(CALLS, 0, 0.5)
    assert hazard == pytest.approx((1 + 5 * before) / (3 + 5), rel=1e-3), "five sessions' worth of what was published"


def test_a_session_that_ends_again_without_its_return_is_not_known_of() -> None:
    returns = Returns()
    for _ in range(3):
        returns.ended(1, ANSWER, 0.0)
    returns.came_back(1, 20.0)
    returns.came_back(1, 21.0)
    returns.came_back(-1, LAST_S * 2)
    assert returns.seen(ANSWER) == pytest.approx(0.5 ** (2 * LAST_S / HALF_LIFE_S), rel=1e-3)


def test_what_was_seen_long_ago_gives_way_to_what_is_seen_now() -> None:
    returns, now = Returns(), 0.0
    for answered in (True, False):
        for number in range(3_000):
            now += 10.0
            returns.ended(number, CHATS[2], now)
            if answered:
                returns.came_back(number, now + 5.0)
        if answered:
            assert returns.chance(CHATS[2], 0, 60) > 0.95
            now += 6 * HALF_LIFE_S
    assert returns.chance(CHATS[2], 0, 60) < 0.1


def test_years_of_running_and_of_silence_change_no_number_but_weights() -> None:
    returns, now = Returns(), 0.0
    for step in (HALF_LIFE_S, 100 * HALF_LIFE_S, 1e12):
        for number in range(500):
            now += 2.0
            returns.ended(number, CALLS, now)
            returns.came_back(number, now + 1.0)
        now += 100.0
        returns.came_back(-1, now)
        assert returns.chance(CALLS, 0, 2.0) > 0.95
        now += step


def test_memory_is_bounded_and_what_is_left_out_does_not_bias() -> None:
    returns, chance = Returns(), Random(3)
    for number in range(6 * MAX_FOLLOWED):
        now = number * 0.02
        returns.ended(number, ANSWER, now)
        if chance.random() < 0.5:
            returns.came_back(number, now + 0.01)
    assert returns.away <= returns.followed <= MAX_FOLLOWED
    assert returns.chance(ANSWER, 0, 0.5) == pytest.approx(0.5, abs=0.03)
    returns.came_back(-1, now + 2 * LAST_S)
    assert (returns.away, returns.followed) == (0, 0)


def test_the_horizon_is_where_a_return_becomes_unlikely() -> None:
    returns = taught(CHATS[1], 300, 5.0, 0.6, 40.0, 0.8)
    for least in (0.3, 0.1, 0.01):
        horizon_s = returns.horizon_s(CHATS[1], least)
        assert returns.chance(CHATS[1], horizon_s * 1.01, inf) < least
        assert returns.chance(CHATS[1], horizon_s * 0.99, inf) > least
    assert returns.horizon_s(CHATS[1], 0.7) == returns.horizon_s(CHATS[1], 1.0) == 0.0
    assert returns.horizon_s(CHATS[1], 0.0) == LAST_S


def test_the_curve_is_there_to_be_drawn() -> None:
    points = Returns().curve(CALLS)
    assert [edge_s for edge_s, _ in points] == list(EDGES_S)
    assert len(points) == BINS + 1
    assert points[0] == (0.0, 0.0)
    assert points[-1][1] == pytest.approx(0.99)
    assert [share for _, share in points] == sorted(share for _, share in points)


def test_what_is_learnt_outlasts_the_process() -> None:
    returns, again = taught(CHATS[1], 100, 2.0, 0.6, 40.0, 0.8), Returns()
    again.resume(json.loads(json.dumps(returns.state)))
    assert again.state == pytest.approx(returns.state)
    for idle_s in (0.0, 3.0, 50.0, 1_000.0):
        assert again.chance(CHATS[1], idle_s, 60) == pytest.approx(returns.chance(CHATS[1], idle_s, 60))
    again.ended(1, CHATS[1], 5.0)
    again.came_back(1, 5.1)
    again.came_back(-1, 10.0)
    assert again.seen(CHATS[1]) == pytest.approx(returns.seen(CHATS[1]) + 1, rel=1e-3), "whatever its clock says"


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: (*s, 0.0), lambda s: (-1.0, *s[1:]), lambda s: (inf, *s[1:])]
)
def test_the_state_of_something_else_is_refused(change) -> None:
    with pytest.raises(ValueError, match="not the state"):
        Returns().resume(change(Returns().state))


HAZARDS = st.lists(st.floats(0, 0.999), min_size=BINS, max_size=BINS)
TIMES = st.floats(0, 20_000)


@given(HAZARDS, TIMES, TIMES, TIMES, st.floats(0, 1))
def test_chances_obey_their_laws(
    hazards: list[float], idle_s: float, soon_s: float, later_s: float, least: float
) -> None:
    curve = Curve(hazards)
    soon, both = curve.chance(idle_s, soon_s), curve.chance(idle_s, soon_s + later_s)
    assert 0 <= soon <= both + 1e-9 <= curve.chance(idle_s, inf) + 2e-9 <= 1 + 2e-9
    then = curve.chance(idle_s + soon_s, later_s)
    assert both == pytest.approx(soon + (1 - soon) * then, abs=1e-6), "back soon, or not and then later"
    assert curve.chance(idle_s + soon_s, inf) <= curve.chance(idle_s, inf) + 1e-9, "hope fades"
    horizon_s = curve.horizon_s(least)
    assert 0 <= horizon_s <= LAST_S
    assert curve.chance(horizon_s * 1.001 + 1e-6, inf) <= least + 1e-6


EVENTS = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 8), st.sampled_from(CLASSES[:4]), st.sampled_from((0.0, 0.1, 1.0, 60.0, 1e4, 1e7))
    )
)


@settings(deadline=None)
@given(EVENTS)
def test_whatever_happens_chances_are_chances(events: list[tuple[bool, int, ReturnClass, float]]) -> None:
    returns, now = Returns(), 0.0
    for ends, session, kind, passed_s in events:
        now += passed_s
        if ends:
            returns.ended(session, kind, now)
        else:
            returns.came_back(session, now)
    for kind in CLASSES[:4]:
        assert 0 <= returns.chance(kind, 3.0, 60.0) <= returns.chance(kind, 3.0, inf) < 1
    assert returns.away <= min(9, returns.followed)
    returns.came_back(-1, now + LAST_S + 1)
    assert (returns.away, returns.followed) == (0, 0), "nobody is followed for ever"
