"""For how long an exchange has been silent, as far as a sweep twice a second can tell."""

from __future__ import annotations

REFUSING_SILENCE_S = 1.0
"""A stream whose replica accepts no connection any more is ended after this much silence: a vLLM that was told to stop
leaves its streams open and mute, while one that shuts down gracefully keeps sending."""


class Silence:
    """Counts what arrives; the clock is only looked at in sweeps, not for every chunk."""

    __slots__ = ("_seen", "_since_s", "segments")

    def __init__(self, now: float) -> None:
        self.segments = 0
        """Pieces that have arrived; the owner counts them."""
        self._seen = 0
        self._since_s = now

    def restart(self, now: float) -> None:
        """Begin again: something has been sent."""
        self._seen, self._since_s = self.segments, now

    def moved(self, now: float) -> bool:
        """Tell whether something has come since this was last asked."""
        if self.segments == self._seen:
            return False
        self._seen, self._since_s = self.segments, now
        return True

    def lasts(self, now: float, limit_s: float, refusing: bool = False) -> bool:
        """Tell whether nothing has come for `limit_s`, or for `REFUSING_SILENCE_S` from a replica that refuses."""
        if self.moved(now):
            return False
        return now - self._since_s >= (min(limit_s, REFUSING_SILENCE_S) if refusing else limit_s)
