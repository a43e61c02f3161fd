from __future__ import annotations

import logging
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.adapters.history.columns import Columns
from router.adapters.history.kept import MAX_RUNS, MAX_SESSIONS, MAX_TURNS, encode, resume, take
from router.core.history.layout import LAYOUT
from tests.adapters.history.counted import World, turn
from tests.adapters.records import decision, record

NAMES = ("5m", "1h", "24h")


def busy(world: World, requests: int = 200) -> None:
    random = Random(1)
    for number in range(requests):
        world.clock.now += random.expovariate(1 / 60)
        told = record(
            decision=decision(f"r{number % 2}", random.randrange(500)), model=f"m-{number % 5}",
            ttft_s=random.expovariate(1), turn=turn(f"s-{number % 9}", number, random.choice([0, 0, 40])),
        )  # fmt: skip
        world.history.request_finished(told)
        world.sessions.request_finished(told)


def saved(world: World) -> bytes:
    return encode(take(world.history, world.sessions))


def restarted(world: World, data: bytes, away_s: float = 0.0) -> None:
    world.clock.now += away_s
    world.restart()
    resume(world.history, world.sessions, data)


def refused(world: World, data: bytes, caplog: pytest.LogCaptureFixture) -> str:
    """Have what can't be used left; return the warning."""
    caplog.clear()
    restarted(world, data)
    (warning,) = caplog.records
    assert (warning.name, warning.levelno) == ("warmroute.state", logging.WARNING)
    assert world.window("24h")["requests"] == 0
    assert not list(world.sessions.latest())
    return warning.getMessage()


async def test_what_was_counted_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    busy(world)
    before = [world.window(name) for name in NAMES]
    columns = [await Columns(world.history).show(name) for name in NAMES]
    restarted(world, saved(world))
    assert [world.window(name) for name in NAMES] == before
    assert [await Columns(world.history).show(name) for name in NAMES] == columns
    assert before[2]["requests"] == 200
    assert not caplog.records
    busy(world, 1)
    assert world.window("24h")["requests"] == 201


def test_what_has_passed_meanwhile_is_left_out() -> None:
    world = World()
    busy(world)
    data = saved(world)
    restarted(world, data, away_s=4_000)
    assert (world.window("1h")["requests"], world.window("24h")["requests"]) == (0, 200)
    restarted(world, data, away_s=90_000)
    assert world.window("24h")["requests"] == 0


async def test_the_time_between_two_routers_is_a_gap() -> None:
    world = World()
    world.clock.now += 30
    restarted(world, saved(world), away_s=60)
    world.clock.now += 20
    shown = await Columns(world.history).show("5m")
    assert shown["requests"][-12:] == [0, 0, 0, None, None, None, None, None, None, 0, 0, 0]
    restarted(world, saved(world), away_s=30)
    shown = await Columns(world.history).show("5m")
    assert shown["requests"][-9:] == [None, None, None, 0, 0, None, None, None, 0]


def test_sessions_come_back_with_their_sums_and_without_score_tables() -> None:
    world = World()
    busy(world)
    before = [(session, kept.turns_seen, kept.lost_tokens) for session, kept in world.sessions.latest()]
    misses = [miss.number for miss in world.sessions.misses(10)]
    assert any(turn.scores for _, session in world.sessions.latest() for turn in session.turns)
    restarted(world, saved(world))
    assert [(session, kept.turns_seen, kept.lost_tokens) for session, kept in world.sessions.latest()] == before
    for _, session in world.sessions.latest():
        assert len(session.turns) == MAX_TURNS
        assert session.turns[-1].number > session.turns[0].number
        assert not any(turn.scores for turn in session.turns)
    assert [miss.number for miss in world.sessions.misses(10)] == misses


def test_no_more_than_is_said_is_kept() -> None:
    world = World()
    for number in range(2 * MAX_SESSIONS):
        world.sessions.request_finished(record(turn=turn(f"session-{number}", number)))
    taken = take(world.history, world.sessions)
    assert [kept.turns[0].number for kept in taken.sessions] == list(range(MAX_SESSIONS, 2 * MAX_SESSIONS))
    assert len(saved(world)) < MAX_SESSIONS * MAX_TURNS * 200
    world = World()
    for _ in range(2 * MAX_RUNS):
        restarted(world, saved(world), away_s=60)
    assert len(take(world.history, world.sessions).runs_s) == MAX_RUNS


def test_nothing_kept_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    restarted(world, b"")
    assert not caplog.records


def test_another_layout_is_refused_by_that_name(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for data in (msgspec.msgpack.encode([LAYOUT + 1, "anything"]), msgspec.msgpack.encode([0])):
        assert "another version" in refused(world, data, caplog)


def test_what_does_not_fit_together_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    busy(world, 20)
    good = msgspec.msgpack.decode(saved(world))
    step = good[3][0]
    for place, bad in (
        (2, [["model", "a", 5]]),
        (3, [step, step]),
        (3, [[step[0], step[1], step[2][4:]]]),
        (3, [[step[0], step[1] + step[1], step[2] + step[2]]]),
        (3, [[step[0], step[1][1:], step[2]]]),
        (1, [[1]]),
    ):
        changed = [*good]
        changed[place] = bad
        refused(world, msgspec.msgpack.encode(changed), caplog)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(min_size=1, max_size=100))
def test_any_other_bytes_are_refused(caplog: pytest.LogCaptureFixture, data: bytes) -> None:
    refused(World(), data, caplog)


def test_a_clock_that_was_set_back_costs_the_steps_of_the_future_only(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    busy(world)
    data = saved(world)
    restarted(world, data, away_s=-1_800)
    assert not caplog.records
    assert 0 < world.window("1h")["requests"] < 200
