"""The hottest prefixes are found among many, in bounded memory, and those of yesterday make room."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from router.core.types import RoutingRequest
from router.core.warmth import COUNTED, FADING_S, KEPT, REBASE_S, Opening, Warmth


def opening(key: int) -> Opening:
    return Opening("/v1/chat/completions", b"%d" % key, RoutingRequest("m", "chat", None, 0))


def see(warmth: Warmth, key: int, now: float = 0.0, times: int = 1) -> None:
    """Show requests, and give a text whenever one is wanted."""
    for _ in range(times):
        if warmth.seen(key, now):
            warmth.keep(key, opening(key))


def kept(warmth: Warmth) -> list[int]:
    return [int(known.body) for known in warmth.hottest()]


def test_a_prefix_that_was_seen_once_is_shared_by_nobody() -> None:
    warmth = Warmth()
    assert not warmth.seen(1, 0.0)
    assert warmth.seen(1, 0.0)
    assert kept(warmth) == []


def test_the_text_is_asked_for_until_it_is_given_and_not_again() -> None:
    warmth = Warmth()
    see(warmth, 1)
    assert warmth.seen(1, 0.0)
    assert warmth.seen(1, 0.0)
    warmth.keep(1, opening(1))
    assert not warmth.seen(1, 0.0)
    assert kept(warmth) == [1]


def test_a_text_that_can_not_be_kept_is_not_asked_for_again() -> None:
    warmth = Warmth()
    see(warmth, 1)
    assert warmth.seen(1, 0.0)
    warmth.keep(1, None)
    assert not any(warmth.seen(1, 0.0) for _ in range(10))


def test_the_hottest_come_first() -> None:
    warmth = Warmth()
    for key, times in ((1, 3), (2, 9), (3, 6)):
        see(warmth, key, times=times)
    assert kept(warmth) == [2, 3, 1]


def test_what_was_hot_long_ago_is_not_any_more() -> None:
    warmth = Warmth()
    see(warmth, 1, now=0.0, times=100)
    see(warmth, 2, now=6 * FADING_S, times=2)
    assert kept(warmth) == [2, 1]


def test_time_may_go_on_for_ever() -> None:
    warmth = Warmth()
    for day in range(40):
        see(warmth, 1, now=day * REBASE_S * 3.0, times=3)
        see(warmth, 2, now=day * REBASE_S * 3.0, times=2)
    assert kept(warmth) == [1, 2]


def test_a_hotter_prefix_takes_the_place_of_the_coldest_text() -> None:
    warmth = Warmth()
    for key in range(KEPT):
        see(warmth, key, times=10 + key)
    see(warmth, 99, times=10)
    assert 99 not in kept(warmth), "about as hot as the coldest: they would take turns"
    see(warmth, 99, times=10)
    assert set(kept(warmth)) == {*range(1, KEPT), 99}


def test_a_frequent_prefix_survives_a_flood_of_others() -> None:
    """Space-Saving: what has more than its share of the slots is never lost."""
    warmth, chance = Warmth(), random.Random(4)
    frequent = [1] * 30 + [2] * 20 + [3] * 10
    stream = frequent * 10 + list(range(1_000, 3_000))
    chance.shuffle(stream)
    for key in stream:
        see(warmth, key)
    assert kept(warmth)[:3] == [1, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0.0, 5_000.0)), max_size=600))
def test_memory_is_bounded_whatever_comes(seen: list[tuple[int, float]]) -> None:
    warmth = Warmth()
    for key, now in sorted(seen, key=lambda one: one[1]):
        see(warmth, key, now)
    assert len(warmth) <= COUNTED
    assert len(kept(warmth)) <= KEPT
    assert len(set(kept(warmth))) == len(kept(warmth))


@given(st.lists(st.integers(0, 90), max_size=600))
def test_no_prefix_above_its_share_is_missing(keys: list[int]) -> None:
    warmth = Warmth()
    for key in keys:
        warmth.seen(key, 0.0)
    for key, times in Counter(keys).items():
        if times > len(keys) / COUNTED:
            assert key in warmth
