"""The history as it is kept in the state file: packed counts, and the last turns without their score tables."""

from __future__ import annotations

import logging
from array import array
from itertools import islice

import msgspec
from msgspec.structs import replace

from router.adapters.history.counting import History
from router.adapters.history.sessions import SessionLog, Turn
from router.core.history.layout import LAYOUT
from router.core.history.series import Series
from router.core.history.windows import COARSE_S, FINE_S, Rolling, Step

LOGGER = logging.getLogger("warmroute.state")

MAX_SESSIONS = 500
MAX_TURNS = 10
"""Kept of each session: with 200 bytes a turn, the file grows by 1 MB at the most. The counts are larger: up to 5 MB
with 32 replicas and 20 models that are busy all day."""

MAX_RUNS = 100
"""Of which it is known from when to when they were: of a router that is restarted every few minutes the last hours."""

DAY_S = 86_400.0

_NUMBER_BYTES = array("I").itemsize


class KeptStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One step: its keys, and as many values of 4 or 8 bytes each."""

    number: int
    keys: bytes
    values: bytes

    def step(self) -> Step:
        """Return it as it was. Raises ValueError where keys and values do not fit each other."""
        keys = array("I", self.keys)
        values = array("Q" if len(self.values) == 2 * len(self.keys) else "I", self.values)
        if len(keys) != len(values) or len(set(keys)) != len(keys):
            raise ValueError("keys and values do not fit")
        return Step(self.number, keys, values)


class KeptSession(msgspec.Struct, frozen=True, array_like=True):
    """One session: its sums, and its last turns."""

    turns_seen: int
    prompt_tokens: int
    cached_tokens: int
    lost_tokens: int
    turns: list[Turn]


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """All of it."""

    layout: int
    runs_s: list[tuple[float, float]]
    """From when to when routers ran, in Unix time."""
    series: list[tuple[str, str, int]]
    fine: list[KeptStep]
    coarse: list[KeptStep]
    sessions: list[KeptSession]
    """Last used last."""


class Taken(msgspec.Struct, frozen=True):
    """What `take` found; nothing of it changes any more, so it can be encoded in another thread."""

    runs_s: list[tuple[float, float]]
    series: list[tuple[str, str, int]]
    fine: list[Step]
    coarse: list[Step]
    sessions: list[KeptSession]


def take(history: History, sessions: SessionLog) -> Taken:
    """Take what is to be kept, in about a millisecond."""
    history.roll()
    latest = list(islice(sessions.latest(), MAX_SESSIONS))
    return Taken(
        [*history.ran_s, (history.started_s, history.now())][-MAX_RUNS:],
        [(*name, first) for name, first in history.series],
        history.rolling.steps("1h"),
        history.rolling.steps("24h"),
        [
            KeptSession(
                session.turns_seen,
                session.prompt_tokens,
                session.cached_tokens,
                session.lost_tokens,
                list(session.turns)[-MAX_TURNS:],
            )
            for _, session in reversed(latest)
        ],
    )


def encode(taken: Taken) -> bytes:
    """Return what was taken as bytes."""
    fine, coarse = ([_kept(step) for step in steps] for steps in (taken.fine, taken.coarse))
    sessions = [replace(session, turns=[_without_scores(turn) for turn in session.turns]) for session in taken.sessions]
    return msgspec.msgpack.encode(Kept(LAYOUT, taken.runs_s, taken.series, fine, coarse, sessions))


def _without_scores(turn: Turn) -> Turn:
    return replace(turn, scores=[]) if turn.scores else turn


def _kept(step: Step) -> KeptStep:
    return KeptStep(step.number, step.keys.tobytes(), step.values.tobytes())


def resume(history: History, sessions: SessionLog, data: bytes) -> None:
    """Give those that have counted nothing yet what `encode` returned. What can't be used is left, with one warning."""
    if not data:
        return
    try:
        _resume(history, sessions, data)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        LOGGER.warning("the history in the state file can't be used (%s); starting without it", error)


def _resume(history: History, sessions: SessionLog, data: bytes) -> None:
    if msgspec.msgpack.decode(data, type=_Head).layout != LAYOUT:
        raise ValueError("another version of Warmroute wrote it")
    kept = msgspec.msgpack.decode(data, type=Kept)
    now = history.started_s
    series, rolling = Series(), Rolling(now)
    series.resume(kept.series)
    rolling.resume(_steps(kept.fine, now / FINE_S), _steps(kept.coarse, now / COARSE_S), now)
    history.resume(series, rolling, [run_s for run_s in kept.runs_s if now - DAY_S < run_s[1] <= now])
    for session in kept.sessions:
        if session.turns:
            sums = (session.turns_seen, session.prompt_tokens, session.cached_tokens, session.lost_tokens)
            sessions.resume(session.turns, *sums)


class _Head(msgspec.Struct, array_like=True):
    layout: int


def _steps(kept: list[KeptStep], last: float) -> list[Step]:
    """Return the steps but those of the future: the machine's clock may have been set back."""
    return [one.step() for one in kept if one.number <= last]
