"""Passive health of one replica: ejected by evidence, readmitted by the first success or a trial after a back-off."""

from __future__ import annotations

from router.core.types import OutcomeKind

FIRST_BACKOFF_S = 0.5
"""A restart of a proxy or a dropped connection is over by then; one failed trial costs a client nothing."""

MAX_BACKOFF_S = 10.0
"""A dead replica costs one failed connect in this time at the most."""

BUSY_HOLD_S = 1.0
"""How long a 429 or 503 without Retry-After counts: one reading of the engine's metrics later the gauges know
better."""

MAX_BUSY_HOLD_S = 10.0


class Health:
    """Whether a replica may be chosen. States: up; ejected until `retry_at_s`, then one trial per back-off."""

    __slots__ = ("busy_until_s", "cause", "failures", "refusing_since_s", "retry_at_s")

    def __init__(self) -> None:
        self.failures = 0
        """Failures in a row; 0 is up."""
        self.cause: OutcomeKind | None = None
        self.retry_at_s = float("-inf")
        self.busy_until_s = float("-inf")
        self.refusing_since_s: float | None = None
        """Since when it accepts no connection; None while it does."""

    @property
    def up(self) -> bool:
        """Tell whether the last evidence was a success."""
        return self.failures == 0

    def available(self, now: float) -> bool:
        """Tell whether a request may be sent: up, or due for a trial."""
        return self.failures == 0 or now >= self.retry_at_s

    def tried(self, now: float) -> None:
        """Note a trial: nobody else is sent there until it succeeded or another back-off passed."""
        self.retry_at_s = now + self._backoff_s()

    def failed(self, cause: OutcomeKind, now: float) -> None:
        """Eject, for longer with each failure in a row."""
        self.failures += 1
        self.cause = cause
        self.retry_at_s = now + self._backoff_s()
        if cause is OutcomeKind.REFUSED:
            if self.refusing_since_s is None:
                self.refusing_since_s = now
        else:
            self.refusing_since_s = None

    def succeeded(self) -> None:
        """Readmit at once."""
        self.failures = 0
        self.cause = self.refusing_since_s = None
        self.retry_at_s = float("-inf")

    def probed(self) -> bool:
        """Note that a probe was answered; return whether that readmitted the replica.

        It does where the evidence was a refused connection. A replica that resets requests while it answers probes
        must pass a trial instead.
        """
        self.refusing_since_s = None
        if self.cause is not OutcomeKind.REFUSED:
            return False
        self.succeeded()
        return True

    def pushed_back(self, now: float, retry_after_s: float | None) -> None:
        """Note a 429 or 503: load, not failure; it neither counts as one nor ends a streak."""
        hold_s = BUSY_HOLD_S if retry_after_s is None else min(retry_after_s, MAX_BUSY_HOLD_S)
        self.busy_until_s = max(self.busy_until_s, now + hold_s)

    def _backoff_s(self) -> float:
        return float(min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self.failures - 1, 10)))
