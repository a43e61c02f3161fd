"""Whether touches pay: seconds of prefill that they saved, those that they cost, and a switch."""

from __future__ import annotations

from math import exp

WINDOW_S = 900.0
"""Time constant of the balance: several times as long as blocks stay in a busy cache, so that a touch and the return
which it is made for are seen together."""

LEAST_TOUCHES = 20
"""Touches before they are judged: one long session that comes back, or does not, outweighs several."""

ALLOWED_LOSS_RATIO = 0.002
"""Of the fleet's time over the window: touches come before what they save, so some loss is an advance."""

REST_S = 1800.0
"""How long nothing is touched after a loss: traffic that has changed has shown it by then."""


TRUST_S = 2.0
"""Seconds of prefill that expectations are believed for before what was seen corrects them."""


class Measured:
    """Seconds that were expected, those that came of it, and how they compare; both fade with `WINDOW_S`."""

    __slots__ = ("_at_s", "_expected_s", "_seen_s")

    def __init__(self) -> None:
        self._expected_s = self._seen_s = 0.0
        self._at_s = 0.0

    def add(self, expected_s: float, seen_s: float, now: float) -> None:
        """Take in what is expected, or what has come."""
        fading = exp((self._at_s - now) / WINDOW_S)
        self._expected_s = self._expected_s * fading + expected_s
        self._seen_s = self._seen_s * fading + seen_s
        self._at_s = now

    @property
    def ratio(self) -> float:
        """What comes of an expected second; 1 before anything was seen."""
        return (self._seen_s + TRUST_S) / (self._expected_s + TRUST_S)


class Profit:
    """The account. All in seconds of a replica's prefill."""

    def __init__(self) -> None:
        self.saved_s = 0.0
        """Prefill that was not done again, since a session's blocks were there for its touches."""
        self.lost_s = 0.0
        """Prefill that was done again, since touched blocks had pushed others' out."""
        self.spent_s = 0.0
        """What touches took."""
        self.hits = 0
        """Requests that found what would have been evicted."""
        self.misses = 0
        """Requests that missed what would have been there."""
        self.times_off = 0
        self.savings = Measured()
        self.losses = Measured()
        self._balance_s = 0.0
        self._judged = 0
        self._at_s = float("-inf")
        self._off_until_s = float("-inf")

    @property
    def profit_s(self) -> float:
        """Saved - lost - spent, since the start."""
        return self.saved_s - self.lost_s - self.spent_s

    def balance_s(self, now: float) -> float:
        """The same, fading with `WINDOW_S`."""
        return self._balance_s * exp((self._at_s - now) / WINDOW_S) if self._balance_s else 0.0

    def saved(self, seconds: float, now: float) -> None:
        """Note a hit that there would not have been."""
        self.saved_s += seconds
        self.hits += 1
        self.savings.add(0.0, seconds, now)
        self._add(seconds, now)

    def lost(self, seconds: float, now: float) -> None:
        """Note a miss that there would not have been."""
        self.lost_s += seconds
        self.misses += 1
        self.losses.add(0.0, seconds, now)
        self._add(-seconds, now)

    def expected(self, saved_s: float, lost_s: float, now: float) -> None:
        """Note what a touch should save, and what its blocks should push out."""
        self.savings.add(saved_s, 0.0, now)
        self.losses.add(lost_s, 0.0, now)

    def spent(self, seconds: float, now: float) -> None:
        """Note a touch."""
        self.spent_s += seconds
        self._judged += 1
        self._add(-seconds, now)

    def _add(self, seconds: float, now: float) -> None:
        self._balance_s = self.balance_s(now) + seconds
        self._at_s = now

    def resting(self, now: float) -> bool:
        """Tell whether nothing is to be touched, after a loss."""
        return now < self._off_until_s

    def judge(self, replicas: int, now: float) -> bool:
        """Turn touches off for `REST_S` if they lose; return whether that was done now."""
        if self.resting(now) or self._judged < LEAST_TOUCHES:
            return False
        if self.balance_s(now) >= -ALLOWED_LOSS_RATIO * WINDOW_S * replicas:
            return False
        self._off_until_s = now + REST_S
        self._balance_s, self._judged = 0.0, 0
        self.times_off += 1
        return True
