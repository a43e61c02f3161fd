"""The turns of a run, and which of them are one session's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from router.replay.demand import Job
from router.replay.plan import Answered


@dataclass(frozen=True, slots=True)
class Turn:
    """One answered request."""

    answered: Answered
    session: int | None
    """None: its client named none."""
    hashes: Sequence[int] = ()
    """The prompt's full blocks, where there is no name to go by."""

    @property
    def held_tokens(self) -> int:
        """What the next turn can find in cache."""
        return self.answered.prompt_tokens + self.answered.output_tokens

    @property
    def busy_s(self) -> float:
        """From its being sent to an engine to its last token."""
        return self.answered.ended_s - self.answered.arrived_s - self.answered.queued_s


def turn_of(job: Job, answered: Answered, block_tokens: int) -> Turn:
    """Return a turn as it is kept."""
    if job.session is not None:
        return Turn(answered, job.session)
    return Turn(answered, None, (job.simulated.block_hashes or ())[: job.prompt_tokens // block_tokens])


def by_session(turns: Iterable[Turn]) -> list[list[Turn]]:
    """Return the sessions, in order of their first arrivals, each with its turns in that order."""
    sessions: dict[int, list[Turn]] = {}
    unnamed = Prefixes()
    for turn in sorted(turns, key=lambda turn: turn.answered.arrived_s):
        session = unnamed.session_of(turn.hashes) if turn.session is None else turn.session
        sessions.setdefault(session, []).append(turn)
    return list(sessions.values())


class Prefixes:
    """Sessions without a name: a prompt that begins with all full blocks of an earlier one is its next turn.

    Only a block that the earlier one brought in tells so, and only once: a system prompt that many share makes no
    session of them. A prompt without a full block is a session of its own.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """By the last block of a session's last turn."""
        self._seen: set[int] = set()
        self._begun = 0

    def session_of(self, hashes: Sequence[int]) -> int:
        """Return the number of the session that the next request belongs to; below 0, so never a name's hash."""
        before = next((block for block in reversed(hashes) if block in self._open), None)
        if before is None:
            self._begun += 1
            session = -self._begun
        else:
            session = self._open.pop(before)
        if hashes and (hashes[-1] == before or hashes[-1] not in self._seen):
            self._open[hashes[-1]] = session
        self._seen.update(hashes)
        return session
