"""Health of one replica: a state, moved by evidence. The table below is all there is to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from router.core.types import OutcomeKind

FIRST_BACKOFF_S = 0.5
"""A restart of a proxy or a dropped connection is over by then; one failed trial costs a client nothing."""

MAX_BACKOFF_S = 10.0
"""A dead replica costs one failed connect in this time at the most."""

BUSY_HOLD_S = 1.0
"""How long a 429 or 503 without Retry-After counts: one reading of the engine's metrics later the gauges know
better."""

MAX_BUSY_HOLD_S = 10.0

LEAST_RAMP_RATIO = 0.1
"""Share of its work at which a slow start begins: with less, nothing would be learnt of the replica."""


class State(StrEnum):
    """What a replica is good for."""

    JOINING = "joining"
    """New, nothing is known of it. Takes requests: one that it refuses costs a client nothing."""
    READY = "ready"
    """Takes requests."""
    SUSPECT = "suspect"
    """Takes requests, at a price: it has missed a probe, or says nothing while others answer."""
    EJECTED = "ejected"
    """Out, but for one trial after each back-off."""
    DRAINING = "draining"
    """Takes nothing new; what runs there ends as it would."""
    GONE = "gone"
    """Removed from the fleet."""


class Event(StrEnum):
    """What moves a state."""

    ANSWERED = "an answer"
    """To a request; or to a probe, where it was probes or connections that had failed."""
    FAILED = "a refused or lost connection"
    MISSED = "a failed probe"
    MISSED_ALL = "as many failed probes as are allowed"
    SILENT = "no byte while others answer"
    MUTE = "silent for twice as long"
    RESTARTED = "its process is a new one"
    DRAINED = "drain"
    UNDRAINED = "undrain"
    REMOVED = "removed"


_ENDS = {Event.DRAINED: State.DRAINING, Event.REMOVED: State.GONE}

TRANSITIONS: dict[State, dict[Event, State]] = {
    State.JOINING: {
        Event.ANSWERED: State.READY,
        Event.FAILED: State.EJECTED,
        Event.MISSED: State.EJECTED,
        Event.MISSED_ALL: State.EJECTED,
        Event.MUTE: State.EJECTED,
        **_ENDS,
    },
    State.READY: {
        Event.MISSED: State.SUSPECT,
        Event.MISSED_ALL: State.EJECTED,
        Event.FAILED: State.EJECTED,
        Event.SILENT: State.SUSPECT,
        **_ENDS,
    },
    State.SUSPECT: {
        Event.ANSWERED: State.READY,
        Event.MISSED_ALL: State.EJECTED,
        Event.FAILED: State.EJECTED,
        Event.MUTE: State.EJECTED,
        Event.RESTARTED: State.JOINING,
        **_ENDS,
    },
    State.EJECTED: {Event.ANSWERED: State.READY, Event.RESTARTED: State.JOINING, **_ENDS},
    State.DRAINING: {Event.UNDRAINED: State.JOINING, Event.REMOVED: State.GONE},
    State.GONE: {},
}
"""Where each event leads; one that is not named changes nothing."""

TAKING = frozenset({State.JOINING, State.READY, State.SUSPECT})


class Cause(StrEnum):
    """The last evidence against a replica."""

    REFUSED = "refused"
    RESET = "reset"
    DIED = "died"
    PROBES = "probes"
    SILENCE = "silence"


_TOLD_BY_PROBES = frozenset({Cause.REFUSED, Cause.PROBES})
"""What an answered probe disproves. A replica that resets requests, or lets them wait, may well answer probes."""


@dataclass(slots=True)
class Care:
    """How much is needed, for all replicas of a fleet. May change while it runs."""

    probe_failures: int = 3
    """Failed probes in a row that eject."""
    slow_start_s: float = 10.0
    begun_s: float = float("inf")
    """When the first replica was ready. One that comes in soon after is not new among old ones: no slow start."""


class Health:
    """Whether a replica may be chosen. Times in monotonic seconds."""

    __slots__ = (
        "_care",
        "_missed",
        "_on_trial",
        "busy_until_s",
        "cause",
        "failures",
        "ramp_until_s",
        "refusing_since_s",
        "retry_at_s",
        "since_s",
        "state",
        "up",
    )

    def __init__(self, care: Care | None = None, now: float = 0.0) -> None:
        self._care = care or Care()
        self.state = State.JOINING
        self.since_s = now
        """Since when it is in its state."""
        self.up = True
        """Whether its state lets it take requests."""
        self.failures = 0
        """Back-offs in a row that ended in a failure."""
        self.cause: Cause | None = None
        self.retry_at_s = float("-inf")
        self.busy_until_s = float("-inf")
        self.ramp_until_s = float("-inf")
        """End of its slow start."""
        self.refusing_since_s: float | None = None
        """Since when it accepts no connection; None while it does."""
        self._missed = 0
        self._on_trial = False

    def available(self, now: float) -> bool:
        """Tell whether a request may be sent: its state says so, or it is due for a trial."""
        return self.up or (self.state is State.EJECTED and now >= self.retry_at_s)

    def ramp_ratio(self, now: float) -> float:
        """Return the share of its work that it gets in its slow start: `LEAST_RAMP_RATIO` to 1."""
        slow_start_s = self._care.slow_start_s
        if now >= self.ramp_until_s or not slow_start_s:  # which may have been set to 0 since it began
            return 1.0
        return max(LEAST_RAMP_RATIO, 1.0 - (self.ramp_until_s - now) / slow_start_s)

    # Evidence

    def tried(self, now: float) -> None:
        """Note a trial: nobody else is sent there until it succeeded or another back-off passed."""
        self._on_trial = True
        self.retry_at_s = now + self._backoff_s()

    def failed(self, kind: OutcomeKind, now: float) -> None:
        """Note a refused connection, or one lost under a request.

        The back-off grows with each failed trial; requests that fail together are one failure.
        """
        self.cause = Cause(kind)
        if kind is not OutcomeKind.REFUSED:
            self.refusing_since_s = None
        elif self.refusing_since_s is None:
            self.refusing_since_s = now
        self._ejecting(Event.FAILED, now)

    def succeeded(self, now: float) -> None:
        """Note the answer to a request: readmits at once."""
        self.cause = self.refusing_since_s = None
        self.failures = self._missed = 0
        self._happened(Event.ANSWERED, now)

    def probed(self, now: float) -> bool:
        """Note the answer to a probe; return whether that readmitted the replica."""
        self.refusing_since_s = None
        self._missed = 0
        if self.cause is not None and self.cause not in _TOLD_BY_PROBES:
            return False
        was_up = self.up
        self.succeeded(now)
        return self.up and not was_up

    def missed(self, now: float) -> bool:
        """Note a probe that was not answered well; return whether that ejected the replica."""
        was_up = self.up
        self._missed += 1
        self.cause = Cause.PROBES
        self._ejecting(Event.MISSED_ALL if self._missed >= self._care.probe_failures else Event.MISSED, now)
        return was_up and not self.up

    def silent(self, now: float, mute: bool) -> bool:
        """Note that nothing comes from it while others answer; return whether that ejected the replica.

        `mute`: for so long that its requests are tried elsewhere.
        """
        was_up = self.up
        self.cause = Cause.SILENCE
        self._happened(Event.SILENT, now)
        if mute:
            self._ejecting(Event.MUTE, now)
        return was_up and not self.up

    def restarted(self, now: float) -> None:
        """Note that its process is a new one: what was known of the old one's health is void."""
        if Event.RESTARTED in TRANSITIONS[self.state]:
            self.cause = self.refusing_since_s = None
            self.failures = self._missed = 0
        self._happened(Event.RESTARTED, now)

    def pushed_back(self, now: float, retry_after_s: float | None) -> None:
        """Note a 429 or 503: load, not failure; it neither counts as one nor ends a streak."""
        hold_s = BUSY_HOLD_S if retry_after_s is None else min(retry_after_s, MAX_BUSY_HOLD_S)
        self.busy_until_s = max(self.busy_until_s, now + hold_s)

    # Orders

    def drain(self, now: float) -> None:
        """Take nothing new."""
        self._happened(Event.DRAINED, now)

    def undrain(self, now: float) -> None:
        """Take requests again, as one that has just joined."""
        self.failures = self._missed = 0
        self.cause = None
        self._happened(Event.UNDRAINED, now)

    def remove(self, now: float) -> None:
        """Leave the fleet."""
        self._happened(Event.REMOVED, now)

    # The table

    def _ejecting(self, event: Event, now: float) -> None:
        was_out = self.state is State.EJECTED
        self._happened(event, now)
        if self.state is not State.EJECTED:
            return
        if not was_out or self._on_trial or now >= self.retry_at_s:
            self.failures += 1
            self._on_trial = False
            self.retry_at_s = now + self._backoff_s()

    def _happened(self, event: Event, now: float) -> None:
        then = TRANSITIONS[self.state].get(event)
        if then is None:
            return
        if then is State.READY and self.state is not State.SUSPECT:
            self._begin_slowly(now)
        self.state, self.since_s, self.up = then, now, then in TAKING
        self._on_trial = False

    def _begin_slowly(self, now: float) -> None:
        care = self._care
        care.begun_s = min(care.begun_s, now)
        if now > care.begun_s + care.slow_start_s:
            self.ramp_until_s = now + care.slow_start_s

    def _backoff_s(self) -> float:
        return float(min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(max(self.failures - 1, 0), 10)))


def diagram() -> str:
    """Draw the table, in Mermaid's language. Every state but the last can be removed, which is left out."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.JOINING}"]
    for state, events in TRANSITIONS.items():
        by_end: dict[State, list[Event]] = {}
        for event, then in events.items():
            by_end.setdefault(then, []).append(event)
        for then, causes in by_end.items():
            if then is not State.GONE:
                lines.append(f"    {state} --> {then}: {', or '.join(causes)}")  # a semicolon would end the line
    return "\n".join([*lines, f"    {State.DRAINING} --> {State.GONE}: {Event.REMOVED}"])
