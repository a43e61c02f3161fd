from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from router.adapters.history import sessions as limits
from router.adapters.history.sessions import MAX_MISSES, MAX_SESSIONS, MAX_TURNS, SessionLog
from router.core.misses.types import Cause, Change
from router.core.types import Usage
from tests.adapters.history.counted import START_S, turn
from tests.adapters.records import record


def log() -> SessionLog:
    return SessionLog(lambda: START_S)


def told(sessions: SessionLog, session: str, **fields: Any) -> None:
    lost, number = fields.pop("lost_tokens", 0), fields.pop("number", 2)
    sessions.request_finished(record(turn=turn(session, number, lost), **fields))


def test_a_turn_is_kept_as_it_was() -> None:
    sessions = log()
    change = Change(Cause.STAMPED, 0, "system", 12)
    account = turn("s-1", 3, 470, cause=Cause.STAMPED, change=change)
    told_of = record(turn=account, usage=Usage(510, 10, 20, "stop"), total_s=1.5)
    sessions.request_finished(told_of)
    session = sessions.get("s-1")
    assert session is not None
    (kept,) = session.turns
    assert (kept.number, kept.at_s, kept.request_id, kept.status) == (3, START_S - 1.5, "id-1", 200)
    assert (kept.replica, kept.reason, kept.home) == ("r-1", "warm", "r-1")
    assert (kept.prompt_tokens, kept.matched_tokens, kept.cached_tokens) == (510, 480, 10)
    assert (kept.history_tokens, kept.lost_tokens, kept.cause, kept.change) == (480, 470, Cause.STAMPED, change)
    assert (kept.idle_s, kept.ttft_s, kept.total_s) == (30.0, 0.25, 1.5)
    assert told_of.decision is not None
    assert kept.scores == told_of.decision.scores
    assert (session.prompt_tokens, session.cached_tokens, session.lost_tokens) == (510, 10, 470)


def test_what_has_no_turn_is_not_kept() -> None:
    sessions = log()
    sessions.request_finished(record())
    assert not list(sessions.latest())


def test_sessions_are_told_last_used_first_and_misses_newest_first() -> None:
    sessions = log()
    for ident, session, lost in (("1", "a", 5), ("2", "b", 0), ("3", "c", 7), ("4", "a", 0)):
        told(sessions, session, lost_tokens=lost, request_id=ident)
    assert [session for session, _ in sessions.latest()] == ["a", "c", "b"]
    assert [miss.request_id for miss in sessions.misses(10)] == ["3", "1"]
    assert [miss.request_id for miss in sessions.misses(1)] == ["3"]
    scores = [[bool(turn.scores) for turn in session.turns] for _, session in sessions.latest()]
    assert scores == [[True, False], [True], [False]], "of turns that lost nothing there is no score table"


def test_the_last_turns_are_kept_and_all_are_summed() -> None:
    sessions = log()
    for number in range(1, 71):
        told(sessions, "s", number=number)
    session = sessions.get("s")
    assert session is not None
    assert [turn.number for turn in session.turns] == list(range(21, 71))
    assert len(session.turns) == MAX_TURNS
    assert (session.turns_seen, session.prompt_tokens) == (70, 70 * 500)


def test_the_longest_unused_sessions_go() -> None:
    sessions = log()
    for number in range(MAX_SESSIONS):
        told(sessions, f"s-{number}")
    told(sessions, "s-0")
    told(sessions, "new")
    known = {session for session, _ in sessions.latest()}
    assert len(known) == MAX_SESSIONS
    assert {"s-0", "new"} < known
    assert "s-1" not in known


def test_there_are_never_more_turns_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ALL_TURNS", 100)
    sessions = log()
    for number in range(400):
        told(sessions, f"s-{number % 30 if number % 2 else number % 3}")
        assert sum(len(session.turns) for _, session in sessions.latest()) <= 100
    assert sessions.get("s-0") is not None


def test_score_tables_are_kept_of_the_last_misses_only() -> None:
    sessions = log()
    for number in range(MAX_MISSES + 20):
        told(sessions, f"s-{number % 40}", lost_tokens=5)
    assert len(sessions.misses(10_000)) == MAX_MISSES
    with_scores = sum(bool(turn.scores) for _, session in sessions.latest() for turn in session.turns)
    assert with_scores == MAX_MISSES


def test_a_turn_takes_no_more_memory_than_is_said() -> None:
    sessions, count = log(), 4_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            told(
                sessions, f"session-{number // 10}", number=number, request_id=f"request-{number}",
                usage=Usage(100_000 + number, 90_000 + number, 20, "stop"), ttft_s=number / 7, total_s=number / 3,
            )  # fmt: skip
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / count < 1_000
