"""Touches in a replay: a world in which they must pay, one in which they can't, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.replay.plan import Result
from router.replay.run import run
from router.replay.traces.types import TraceRequest
from tests.replay.worlds import ENGINE, asked, plan, trace

SMALL = replace(ENGINE, kv_tokens=4_000, prefill_tokens_per_s=1_000.0, decode_s=0.01)
"""What is computed in 71 s fills it: 40 tokens a second of passers-by, 16 of agents that are not found."""

AWAY_S = 100.0
"""How long agents stay away: longer than blocks stay, and shorter than twice that."""

MINUTES = 60.0


def passers_by() -> list[TraceRequest]:
    """One every 5 s with 20 blocks of its own, which never comes back."""
    return [asked(5.0 * n, range(1_000_000 + 100 * n, 1_000_020 + 100 * n)) for n in range(int(MINUTES * 12))]


def agents(back: bool = True) -> list[TraceRequest]:
    """Four with 40 blocks, each of which calls a tool for `AWAY_S`; or as many that do so once."""
    turns = []
    for turn in range(int(MINUTES * 60 / AWAY_S)):
        for agent in range(4):
            first = 10_000 * (agent + 1) + (0 if back else 1_000_000_000 * (turn + 1))
            at_s = AWAY_S * turn + 23.0 * agent + 2.5
            turns.append(replace(asked(at_s, range(first, first + 40)), finish_reason="tool_calls"))
    return turns


def replayed(requests: list[TraceRequest], touch: bool) -> Result:
    ordered = sorted(requests, key=lambda request: request.arrives_s)
    return run(plan("affinity", engine=SMALL, replicas=1, minutes=MINUTES, touch=touch), trace(*ordered))


def found(result: Result) -> int:
    """How many requests found more than nothing."""
    return sum(one.cached_tokens > 0 for one in result.answered)


def test_agents_that_come_back_too_late_are_kept_by_touches() -> None:
    requests = passers_by() + agents()
    assert found(replayed(requests, touch=False)) == 0
    touched = replayed(requests, touch=True)
    figures = touched.extra
    assert found(touched) >= 120, (
        "of 140 turns that go on; the first ones teach the engine's speed, and who returns"
    )
    assert figures["touch_hits"] == pytest.approx(found(touched), abs=2)
    assert figures["touch_misses"] == 0
    profit_s = figures["touch_saved_s"] - figures["touch_lost_s"] - figures["touch_spent_s"]
    assert profit_s > 0.3 * figures["touch_hits"], "400 tokens at 1,000 a second, less two or so short requests"
    assert figures["touches_off"] == 0


def test_who_never_comes_back_costs_next_to_nothing() -> None:
    touched = replayed(passers_by() + agents(back=False), touch=True)
    figures = touched.extra
    assert figures["touch_hits"] == 0
    assert figures["touches"] <= 140, "none twice"
    assert figures["touch_spent_s"] < 0.7, "5 ms each, in an hour"


def test_without_it_nothing_is_touched() -> None:
    assert "touches" not in replayed(passers_by()[:20], touch=False).extra


def test_touches_are_nobodys_requests() -> None:
    requests = passers_by() + agents()
    touched = replayed(requests, touch=True)
    assert touched.extra["touches"] > 0
    assert len(touched.answered) == len(requests)
    assert touched.extra["calls"] == len(requests)
