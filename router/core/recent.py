"""What was sent to one replica of late, fading away."""

from __future__ import annotations

from math import exp

RECENT_S = 60.0
"""Time constant of the decaying counts: longer than a think time of a chat (median 25 s), so that paced requests with
nothing in flight still see where the last ones went."""


class Recent:
    """Requests and seconds of work sent to one replica, decaying with `RECENT_S`."""

    __slots__ = ("_at_s", "_requests", "_work_s")

    def __init__(self) -> None:
        self._requests = self._work_s = 0.0
        self._at_s = 0.0

    def add(self, work_s: float, now: float) -> None:
        """Count a request in."""
        self._work_s, self._requests = self.work_s(now) + work_s, self.requests(now) + 1.0
        self._at_s = now

    def take_back(self, work_s: float, now: float) -> None:
        """Count a request out: it was none of a client's."""
        self._work_s, self._requests = self.work_s(now) - work_s, self.requests(now) - 1.0
        self._at_s = now

    def work_s(self, now: float) -> float:
        """Return the seconds of prefill; over `RECENT_S`, the share of time that the replica was busy with them."""
        return self._work_s * exp((self._at_s - now) / RECENT_S)

    def requests(self, now: float) -> float:
        """Return the requests; over `RECENT_S`, their rate a second."""
        return self._requests * exp((self._at_s - now) / RECENT_S)
