"""What became of turns: lost tokens by cause, first turns, and returns."""

from __future__ import annotations

from typing import Any

import pytest

from router.adapters.metrics.turns import LOSING, RETURN_BUCKETS_S
from router.core.misses.types import Cause, Change, TurnAccount
from tests.adapters.metrics.shown import Shown
from tests.adapters.records import record


def turn(**fields: Any) -> TurnAccount:
    whole: dict[str, Any] = {
        "session": "s-1", "number": 2, "idle_s": 30.0, "history_tokens": 480, "cached_tokens": 480, "lost_tokens": 0,
        "cause": None, "change": None,
    }  # fmt: skip
    return TurnAccount(**(whole | fields))


def shown_of(*turns: TurnAccount | None) -> Shown:
    shown = Shown()
    for one in turns:
        shown.collector.request_finished(record(turn=one))
    return shown


@pytest.mark.parametrize("cause", LOSING)
def test_a_turn_that_lost_tokens_counts_under_its_cause(cause: Cause) -> None:
    shown = shown_of(turn(lost_tokens=200, cause=cause), turn(lost_tokens=16, cause=cause))
    turns, tokens = (shown.values(f"warmroute_missed_{what}_total", "cause") for what in ("turns", "tokens"))
    assert turns == dict.fromkeys(LOSING, 0) | {cause: 2}
    assert tokens == dict.fromkeys(LOSING, 0) | {cause: 216}


def test_a_client_that_changed_what_was_not_cached_anyway_lost_nothing() -> None:
    change = Change(Cause.EDITED, 3, "user", 400)
    shown = shown_of(turn(), turn(cause=Cause.EDITED, change=change), None)
    assert set(shown.values("warmroute_missed_turns_total", "cause").values()) == {0}


def test_first_turns_are_counted_whether_they_lost_something_or_not() -> None:
    first = {"number": 1, "idle_s": None}
    shown = shown_of(
        turn(cause=Cause.FIRST_SEEN, history_tokens=0, **first),
        turn(cause=Cause.SPREAD, lost_tokens=480, **first),
        turn(**first),
        turn(),
        turn(number=1, idle_s=3.0),  # asked for again
        turn(number=5, idle_s=None),  # another router has served the turn before
    )
    assert shown.value("warmroute_first_turns_total") == 3
    assert shown.value("warmroute_missed_turns_total", cause="spread") == 1
    assert shown.value("warmroute_missed_turns_total", cause="first-seen") is None
    assert shown.value("warmroute_returns_seconds_count", returned="in-time") == 2, "who is new has not come back"


def test_a_turn_comes_back_too_late_when_its_history_was_evicted() -> None:
    shown = shown_of(
        turn(idle_s=4.0),
        turn(idle_s=300.0, lost_tokens=480, cause=Cause.EVICTED),
        turn(idle_s=7_000.0, lost_tokens=480, cause=Cause.SPILLED),
    )
    name = "warmroute_returns_seconds"
    assert shown.value(f"{name}_sum", returned="too-late") == 300
    assert shown.value(f"{name}_sum", returned="in-time") == 7_004
    assert shown.value(f"{name}_bucket", returned="in-time", le="5.0") == 1
    assert shown.value(f"{name}_bucket", returned="too-late", le="160.0") == 0
    assert shown.value(f"{name}_bucket", returned="too-late", le="320.0") == 1
    bounds = [
        own["le"] for known, own, _ in shown.samples() if known == f"{name}_bucket" and own["returned"] == "in-time"
    ]
    assert bounds == [*map(str, RETURN_BUCKETS_S), "+Inf"]
