"""What is measured of traffic that is known by arithmetic."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import isnan

import pytest

from router.replay.advice.arithmetic import break_even_bytes_per_s, gib_of, idle_ratio, tokens_of
from router.replay.advice.measured import Measured, busiest, fullest, measure
from router.replay.advice.turns import Prefixes, Turn
from router.replay.demand import ClosedLoop, OpenLoop
from router.replay.plan import Answered
from tests.replay.advice.worlds import CEILING_RATIO, HELD_TOKENS, PEOPLE, PEOPLE_TALK, ROOMY, sessions, turn


def answered(arrived_s: float, ended_s: float, prompt: int = 100, cached: int = 0) -> Answered:
    return Answered(arrived_s, arrived_s, ended_s, prompt, cached, 0, 10, 0, "warm")


@pytest.fixture(scope="module")
def people() -> Measured:
    return measure(ROOMY, PEOPLE_TALK)[1]


def test_thirty_seconds_after_four_are_88_percent(people: Measured) -> None:
    assert idle_ratio(30.0, 4.0) == pytest.approx(0.882, abs=0.001)
    assert people.idle_ratio == pytest.approx(30 / 34)
    assert (people.think_p50_s, people.think_p90_s, people.busy_mean_s) == pytest.approx((30.0, 30.0, 4.0))
    assert people.returned_ratio == pytest.approx(10 / 15)


def test_arrivals(people: Measured) -> None:
    assert (people.requests, people.sessions) == (15, 5)
    assert (people.requests_per_s, people.sessions_per_s) == pytest.approx((15 / 300, 5 / 300))
    assert (people.peak_requests_per_s, people.peak_start_s) == pytest.approx((15 / 300, 0.0))


def test_sizes(people: Measured) -> None:
    assert (people.prompt_p50_tokens, people.prompt_p95_tokens) == (400, 600)
    assert (people.history_p50_tokens, people.history_p95_tokens) == (600, 600)
    assert (people.session_p50_tokens, people.session_p95_tokens) == (HELD_TOKENS, HELD_TOKENS)


def test_memory_to_pin_them_all(people: Measured) -> None:
    """The last one's third turn begins 27.2 s after the first one's, which is held for 34."""
    assert (people.present_sessions, people.present_tokens) == (PEOPLE, PEOPLE * HELD_TOKENS)


def test_hits_are_those_of_a_cache_that_never_evicts(people: Measured) -> None:
    assert people.hit_ratio == people.peak_hit_ratio == people.ceiling_ratio == pytest.approx(CEILING_RATIO)


def test_sessions_without_names_are_found_by_their_prefixes(people: Measured) -> None:
    by_time = sorted(chain.from_iterable(sessions(named=False)), key=lambda one: one.arrives_s)
    found = measure(ROOMY, OpenLoop("unnamed", by_time))[1]
    assert found.sessions == people.sessions
    assert found.returned_ratio == pytest.approx(people.returned_ratio)
    assert found.think_p50_s == pytest.approx(30.0)
    assert found.present_tokens == people.present_tokens


def test_the_warm_up_is_not_counted_but_who_began_in_it_is_known() -> None:
    """From second 34 on: 10 requests, all of sessions that began before."""
    found = measure(replace(ROOMY, warm_up_minutes=34 / 60), PEOPLE_TALK)[1]
    assert (found.requests, found.sessions, found.returned_ratio) == (10, 0, 1.0)


def test_who_never_comes_back() -> None:
    found = measure(ROOMY, ClosedLoop("once", [[turn(0, 0)], [turn(1, 0)]]))[1]
    assert found.returned_ratio == 0.0
    assert isnan(found.think_p90_s)
    assert isnan(found.idle_ratio)
    assert found.present_tokens == 217, "each is held while it runs, and they do not overlap"


def test_a_shared_system_prompt_makes_no_sessions() -> None:
    """Block 1 is everybody's. Only what goes on from a session's own block belongs to it."""
    prefixes = Prefixes()
    prompts = [[1, 2], [1, 3], [1], [1], [1, 2, 4], [1, 3, 5], [1, 2, 6], [], [1, 2, 4, 7]]
    found = [prefixes.session_of(prompt) for prompt in prompts]
    assert found == [-1, -2, -3, -4, -1, -2, -5, -6, -1]


def test_an_answer_that_is_asked_for_again_is_the_same_session() -> None:
    prefixes = Prefixes()
    assert [prefixes.session_of(prompt) for prompt in ([1, 2], [1, 2], [1, 2, 3])] == [-1, -1, -1]


def test_the_busiest_five_minutes() -> None:
    at = [0.0, 100.0, 301.0, 302.0, 303.0, 601.5, 700.0]
    assert [one.arrived_s for one in busiest([answered(s, s + 1) for s in at])] == [100.0, 301.0, 302.0, 303.0]
    assert busiest([]) == []


def test_the_fullest_moment() -> None:
    """a: 0 to 10, then 110 tokens until 15; b: 12 to 20. A turn that is resumed is not held twice."""
    a = [Turn(answered(0.0, 10.0), 1), Turn(answered(11.0, 14.0, prompt=200), 1)]
    b = [Turn(answered(12.0, 20.0), 2)]
    assert fullest([a, b], hold_s=1.0) == (2, 210 + 110)
    assert fullest([a, b], hold_s=0.0) == (2, 210 + 110)
    assert fullest([a], hold_s=1e9) == (1, 210)
    assert fullest([], 1.0) == (0, 0)


def test_break_even() -> None:
    """128 KiB a token at 8,000 tokens/s: 1.05 GB/s."""
    assert break_even_bytes_per_s(131_072, 8_000.0) == 1_048_576_000


def test_memory_in_tokens() -> None:
    assert tokens_of(64, 131_072) == 524_288
    assert gib_of(524_288, 131_072) == 64.0
