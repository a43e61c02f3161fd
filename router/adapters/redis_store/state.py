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


class Event(StrEnum):
    """What moves a state."""

    QUICK = "an answer in time"
    LATE = "a late answer"
    REFUSED = "an error for an answer"
    LOST = "no connection, or no answer at all"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.DOWN: {Event.QUICK: State.UP, Event.LATE: State.SLOW, Event.REFUSED: State.REFUSING},
    State.UP: {Event.LATE: State.SLOW, Event.REFUSED: State.REFUSING, Event.LOST: State.DOWN},
    State.SLOW: {Event.QUICK: State.UP, Event.REFUSED: State.REFUSING, Event.LOST: State.DOWN},
    State.REFUSING: {Event.QUICK: State.UP, Event.LATE: State.SLOW, Event.LOST: State.DOWN},
}
"""Where each event leads; one that is not named changes nothing."""

PATIENT = frozenset({(State.UP, Event.LATE), (State.SLOW, Event.QUICK)})
"""Transitions that take `PATIENCE` of their event in a row."""


class Condition:
    """The present state, and what brought it about."""

    def __init__(self) -> None:
        self.state = State.DOWN
        self.cause = "not connected yet"
        self._streak = 0

    def quick(self) -> None:
        """An answer came in time."""
        self._happened(Event.QUICK, "answers in time")

    def late(self, cause: str) -> None:
        """An answer came late, or has not come yet."""
        self._happened(Event.LATE, cause)

    def refused(self, cause: str) -> None:
        """An answer was an error."""
        self._happened(Event.REFUSED, cause)

    def lost(self, cause: str) -> None:
        """There is no connection, or no answer."""
        self._happened(Event.LOST, cause)

    def _happened(self, event: Event, cause: str) -> None:
        then = TRANSITIONS[self.state].get(event)
        patient = (self.state, event) in PATIENT
        self._streak = self._streak + 1 if patient else 0
        if then is not None and (not patient or self._streak >= PATIENCE):
            self.state, self.cause, self._streak = then, cause, 0


def diagram() -> str:
    """Draw the table, in Mermaid's language."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.DOWN}"]
    for state, events in TRANSITIONS.items():
        for event, then in events.items():
            times = f", {PATIENCE} times in a row" if (state, event) in PATIENT else ""
            lines.append(f"    {state} --> {then}: {event}{times}")
    return "\n".join(lines)
