"""Whether Redis can be relied upon: a state, moved by how its answers come."""

from __future__ import annotations

from enum import StrEnum

PATIENCE = 3
"""Late answers in a row that make it slow, and quick ones that make it quick again: one may be our own hiccup."""


class State(StrEnum):
    """What Redis is good for."""

    UP = "up"
    """Asked and told."""
    SLOW = "slow"
    """Told, and not asked: its answers take longer than a request may wait."""
    REFUSING = "refusing"
    """It answers with errors: out of memory, read-only, wrong password. Told as far as it lets us, and not asked."""
    DOWN = "down"
    """Can't be reached, or does not answer at all. What is to be told is kept, up to a limit."""


class Condition:
    """The present state, and what brought it about."""

    def __init__(self) -> None:
        self.state = State.DOWN
        self.cause = "not connected yet"
        self._streak = 0

    def quick(self) -> None:
        """An answer came in time."""
        if self.state is State.SLOW:
            self._count(State.UP, "answers in time")
        else:
            self._become(State.UP, "answers in time")

    def late(self, cause: str) -> None:
        """An answer came late, or has not come yet."""
        if self.state is State.UP:
            self._count(State.SLOW, cause)
        elif self.state is State.SLOW:
            self._streak = 0
        else:
            self._become(State.SLOW, cause)

    def refused(self, cause: str) -> None:
        """An answer was an error."""
        self._become(State.REFUSING, cause)

    def lost(self, cause: str) -> None:
        """There is no connection, or no answer."""
        self._become(State.DOWN, cause)

    def _count(self, then: State, cause: str) -> None:
        self._streak += 1
        if self._streak >= PATIENCE:
            self._become(then, cause)

    def _become(self, state: State, cause: str) -> None:
        if state is not self.state:
            self.cause = cause
        self.state = state
        self._streak = 0
