"""The turns of the last sessions, for the admin API: where each went, what matched, what missed and why."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from router.core.misses.types import Cause, Change, TurnAccount
from router.core.types import Decision, OutcomeKind, Reason, ReplicaId, Score
from router.ports import RequestRecord

MAX_SESSIONS = 2_000
MAX_TURNS = 50
"""Kept of each session: the last ones."""

MAX_ALL_TURNS = 40_000
"""Kept of all sessions together. With a kilobyte each at the most that is 40 MB; the longest unused sessions go."""

MAX_MISSES = 1_000
"""The last turns that lost tokens; only these keep their score tables, of 32 replicas about 7 kB each."""


class Turn(msgspec.Struct, gc=False):
    """One turn. Tokens, and seconds; `at_s` is the Unix time of its arrival."""

    session: str
    model: str
    number: int
    at_s: float
    request_id: str
    status: int
    replica: ReplicaId | None
    reason: Reason | None
    home: ReplicaId | None
    prompt_tokens: int
    matched_tokens: int
    cached_tokens: int | None
    history_tokens: int
    lost_tokens: int
    cause: Cause | None
    change: Change | None
    idle_s: float | None
    ttft_s: float | None
    total_s: float
    scores: list[Score] = []
    """Best first; empty unless it lost tokens, and once it is no longer among the last that did."""


class Session:
    """One conversation."""

    __slots__ = ("cached_tokens", "last_s", "lost_tokens", "prompt_tokens", "turns", "turns_seen")

    def __init__(self) -> None:
        self.turns: list[Turn] = []  # an empty deque has room for 64, and most sessions few turns
        self.turns_seen = 0
        self.last_s = 0.0
        """Unix time at which its last turn ended."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.lost_tokens = 0

    def add(self, turn: Turn, cached_tokens: int) -> None:
        """Take in its next turn."""
        turns = self.turns
        turns.append(turn)
        if len(turns) > MAX_TURNS:
            del turns[0]
        self.turns_seen += 1
        self.last_s = turn.at_s + turn.total_s
        self.prompt_tokens += turn.prompt_tokens
        self.cached_tokens += cached_tokens
        self.lost_tokens += turn.lost_tokens


class SessionLog:
    """The observer that keeps turns."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` in Unix seconds."""
        self._now = now
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        """Last used last."""
        self._misses: deque[Turn] = deque()
        self._turns = 0

    def request_finished(self, record: RequestRecord) -> None:
        """Keep a turn."""
        account = record.turn
        if account is None:
            return
        turn = _turn(record, account, self._now() - record.total_s)
        self._add(turn, account.cached_tokens)
        if account.lost_tokens:
            self._keep_miss(turn, [] if record.decision is None else record.decision.scores)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Failed attempts are no turns."""

    def _keep_miss(self, turn: Turn, scores: list[Score]) -> None:
        turn.scores = scores
        self._misses.append(turn)
        if len(self._misses) > MAX_MISSES:
            self._misses.popleft().scores = []

    def _add(self, turn: Turn, cached_tokens: int) -> None:
        session = self._sessions.get(turn.session)
        if session is None:
            session = self._sessions[turn.session] = Session()
        else:
            self._sessions.move_to_end(turn.session)
        self._turns += len(session.turns) < MAX_TURNS
        session.add(turn, cached_tokens)
        while len(self._sessions) > MAX_SESSIONS or self._turns > MAX_ALL_TURNS:
            _, oldest = self._sessions.popitem(last=False)
            self._turns -= len(oldest.turns)

    def resume(
        self, turns: list[Turn], turns_seen: int, prompt_tokens: int, cached_tokens: int, lost_tokens: int
    ) -> None:
        """Take in the last turns (at least one) of a session that another router kept, and its sums."""
        for turn in turns:
            self._add(turn, 0)
        misses = sorted((*self._misses, *(turn for turn in turns if turn.lost_tokens)), key=lambda turn: turn.at_s)
        self._misses = deque(misses[-MAX_MISSES:])
        session = self._sessions[turns[-1].session]
        session.turns_seen, session.prompt_tokens = turns_seen, prompt_tokens
        session.cached_tokens, session.lost_tokens = cached_tokens, lost_tokens

    def get(self, session: str) -> Session | None:
        """Return a session by its opaque id."""
        return self._sessions.get(session)

    def latest(self) -> Iterator[tuple[str, Session]]:
        """Give the sessions, last used first."""
        return reversed(self._sessions.items())

    def misses(self, limit: int) -> list[Turn]:
        """Return up to `limit` turns that lost tokens, newest first."""
        return list(islice(reversed(self._misses), limit))


_NO_DECISION: tuple[None, None, None, int, int] = (None, None, None, 0, 0)


def _turn(record: RequestRecord, account: TurnAccount, at_s: float) -> Turn:
    replica, reason, home, prompt_tokens, matched_tokens = _decided(record.decision)
    usage = record.usage
    return Turn(
        account.session,
        record.model,
        account.number,
        at_s,
        record.request_id,
        record.status,
        replica,
        reason,
        home,
        prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens,
        matched_tokens,
        usage.cached_tokens,
        account.history_tokens,
        account.lost_tokens,
        account.cause,
        account.change,
        account.idle_s,
        record.ttft_s,
        record.total_s,
    )


def _decided(
    decision: Decision | None,
) -> tuple[ReplicaId | None, Reason | None, ReplicaId | None, int, int]:
    if decision is None:
        return _NO_DECISION
    return decision.replica, decision.reason, decision.home, decision.prompt_tokens, decision.matched_tokens
