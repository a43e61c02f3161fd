from __future__ import annotations

from typing import Any

import pytest

from router.adapters.history.columns import Columns
from router.core.misses.types import Cause
from router.core.types import Usage
from tests.adapters.history.counted import START_S, World, turn
from tests.adapters.records import decision, record

LENGTHS = {"5m": (10, 30), "1h": (10, 360), "24h": (300, 288)}


def served(world: World, matched_tokens: int = 480, **fields: Any) -> None:
    world.history.request_finished(record(decision=decision("r0", matched_tokens), **fields))


def columns_of(shown: dict[str, Any]) -> list[list[float | None]]:
    """All columns, whatever they are nested in."""
    inner = [column for part in shown.values() if isinstance(part, dict) for column in columns_of(part)]
    return [*inner, *(part for part in shown.values() if isinstance(part, list))]


@pytest.mark.parametrize("name", LENGTHS)
async def test_every_column_has_a_number_for_each_step(name: str) -> None:
    world = World()
    for gap_s in (0, 40, 1_000):
        world.clock.now += gap_s
        served(world, turn=turn(lost_tokens=5))
    shown = await Columns(world.history).show(name)
    step_s, length = LENGTHS[name]
    assert (shown["window"], shown["step_s"]) == (name, step_s)
    assert shown["start_s"] == world.clock.now // step_s * step_s - (length - 1) * step_s
    assert {len(column) for column in columns_of(shown)} == {length}


@pytest.mark.parametrize("name", LENGTHS)
async def test_columns_sum_up_to_the_totals(name: str) -> None:
    world = World()
    columns = Columns(world.history)
    for number in range(60):
        world.clock.now += 37 * (number % 7)
        served(world, usage=Usage(500 + number, 464, 20, "stop"), turn=turn(lost_tokens=number % 3 * 10))
        shown, whole = await columns.show(name), world.window(name)
        for field in ("requests", "failed", "prompt_tokens", "predicted_cached_tokens", "reported_prompt_tokens"):
            assert sum(value or 0 for value in shown[field]) == whole[field]
        reasons = {reason: sum(value or 0 for value in row) for reason, row in shown["reasons"].items()}
        assert reasons == whole["reasons"]
        lost = {cause: sum(value or 0 for value in row) for cause, row in shown["causes"].items()}
        assert lost == {row["cause"]: row["tokens"] for row in whole["causes"] if row["tokens"]}


async def test_a_step_tells_its_own_times() -> None:
    world = World()
    served(world, ttft_s=0.1, queued_s=2.0)
    served(world, 0, ttft_s=4.0, turn=turn(lost_tokens=20, cause=Cause.STAMPED))
    world.clock.now += 10
    served(world, ttft_s=0.5)
    shown = await Columns(world.history).show("5m")
    warm, cold = shown["ttft"]["warm_p50_s"][-2:], shown["ttft"]["cold_p95_s"][-2:]
    assert warm == [pytest.approx(0.1, rel=0.19), pytest.approx(0.5, rel=0.19)]
    assert cold == [pytest.approx(4.0, rel=0.19), None]
    assert shown["queued_p95_s"][-2:] == [pytest.approx(2.0, rel=0.19), 0]
    assert shown["causes"] == {"stamped": [None] * 28 + [20, 0]}


async def test_where_nothing_happened_there_is_0_and_where_no_router_ran_null() -> None:
    world = World()
    world.clock.now += 25
    shown = await Columns(world.history).show("5m")
    assert shown["requests"] == [None] * 27 + [0, 0, 0]
    assert shown["ttft"]["warm_p50_s"] == [None] * 30
    assert shown["start_s"] + 27 * 10 == START_S


async def test_what_was_read_once_is_not_kept_for_ever() -> None:
    world = World()
    columns = Columns(world.history)
    for _ in range(1_500):
        world.clock.now += 10
        served(world)
        await columns.show("5m")
    assert len(columns._read) <= 2 * (30 + 360 + 288)
