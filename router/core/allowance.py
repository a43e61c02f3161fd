"""What a client's key may do: requests and tokens a minute, and requests at once.

The minute slides: it is the last 60 seconds at any moment, kept as counts of half a second each. A bucket that fills up
would let twice its limit through in the minute that begins with it full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

WINDOW_S = 60.0
"""The limits are by the minute, as OpenAI's are."""

SLOT_S = 0.5
"""How exactly it is known when something leaves the window; at most 121 counts a key."""

PART_S = 5.0
"""How exactly other routers are told: 13 numbers a key."""

PARTS = int(WINDOW_S / PART_S) + 1

Kind = Literal["requests", "tokens", "concurrent requests"]


class KeyLimits(msgspec.Struct, frozen=True):
    """Limits of one key; 0 is none."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrent_requests: int = 0


class ClientKey(msgspec.Struct, frozen=True):
    """A key that opens the door. The key itself is not kept."""

    name: str
    """For logs, metrics and messages."""
    digest: bytes
    """SHA-256 of the key."""
    limits: KeyLimits = KeyLimits()
    tenant: str | None = None
    """Keys of one tenant share its part of the queue; None: the key is a tenant of its own."""


class Sliding:
    """A count over the last minute. Never too low; too high by what is up to `SLOT_S` older."""

    __slots__ = ("_slots", "_total")

    def __init__(self) -> None:
        self._slots: deque[tuple[int, int]] = deque()
        """Number of the slot and its count, oldest first."""
        self._total = 0

    def add(self, now: float, count: int) -> None:
        """Count something that happens now; `now` never goes back."""
        slot = int(now // SLOT_S)
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1] = (slot, self._slots[-1][1] + count)
        else:
            self._slots.append((slot, count))
        self._total += count

    def total(self, now: float) -> int:
        """Return the count of the last minute."""
        slots = self._slots
        while slots and _leaves_s(slots[0][0]) <= now:
            self._total -= slots.popleft()[1]
        return self._total

    def leaving(self) -> Iterable[tuple[float, int]]:
        """Give the moments at which counts leave the window, and how many then do, in order."""
        return ((_leaves_s(slot), count) for slot, count in self._slots)

    @property
    def empty_s(self) -> float:
        """When all will have left the window; 0 where nothing is in it."""
        return _leaves_s(self._slots[-1][0]) if self._slots else 0.0

    def parts(self, now: float) -> list[int]:
        """Return the counts by age, in steps of `PART_S`, youngest first."""
        counts = [0] * PARTS
        for slot, count in self._slots:
            age_s = max(0.0, now - slot * SLOT_S)
            counts[min(PARTS - 1, int(age_s / PART_S))] += count
        return counts

    @classmethod
    def of_parts(cls, parts: Sequence[int], now: float) -> Sliding:
        """Make it up from `parts` that were told just now: each count is taken to be as young as its step allows."""
        sliding = cls()
        for step in range(len(parts) - 1, -1, -1):
            if parts[step] > 0:
                sliding.add(now - step * PART_S, parts[step])
        return sliding


def _leaves_s(slot: int) -> float:
    return (slot + 1) * SLOT_S + WINDOW_S


class Elsewhere(NamedTuple):
    """What one other router has let in with a key."""

    requests: Sliding
    tokens: Sliding
    running: int


class Denial(NamedTuple):
    """Why a request is not let in, and when it may be tried again."""

    kind: Kind
    limit: int
    wait_s: float


class Standing(NamedTuple):
    """One limit of a key, as it stands."""

    limit: int
    remaining: int
    reset_s: float
    """Until nothing is counted any more."""


RETRY_RUNNING_S = 1.0
"""When a request over the limit of concurrent ones may come again: nobody knows when one of them will end."""


class Allowance:
    """What one key has used. Each admitted request is `finished` once."""

    __slots__ = ("elsewhere", "limits", "requests", "running", "tokens")

    def __init__(self, limits: KeyLimits) -> None:
        self.limits = limits
        self.requests = Sliding()
        self.tokens = Sliding()
        self.running = 0
        self.elsewhere: dict[str, Elsewhere] = {}
        """By router."""

    def admit(self, now: float) -> Denial | None:
        """Count a request in, or say why not.

        Tokens are charged when they are known, at the end: a request is let in while fewer than the limit were used.
        """
        limits = self.limits
        denial = (
            self._too_many_running(limits.concurrent_requests)
            or self._too_many("requests", limits.requests_per_minute, now)
            or self._too_many("tokens", limits.tokens_per_minute, now)
        )
        if denial is None:
            self.running += 1
            self.requests.add(now, 1)
        return denial

    def finish(self, now: float, tokens: int) -> None:
        """Count a request out, and charge its tokens."""
        if not self.running:
            raise RuntimeError("more requests have ended than were let in")
        self.running -= 1
        if tokens > 0:
            self.tokens.add(now, tokens)

    def unused(self, now: float) -> bool:
        """Tell whether there is nothing left to remember."""
        return not (self.running or self.requests.total(now) or self.tokens.total(now) or self.elsewhere)

    def request_standing(self, now: float) -> Standing | None:
        """Return how the limit of requests stands; None without one."""
        return self._standing("requests", self.limits.requests_per_minute, now)

    def token_standing(self, now: float) -> Standing | None:
        """Return how the limit of tokens stands; None without one."""
        return self._standing("tokens", self.limits.tokens_per_minute, now)

    def _standing(self, kind: Kind, limit: int, now: float) -> Standing | None:
        if not limit:
            return None
        counts = self._counts(kind)
        used = sum(count.total(now) for count in counts)
        last_s = max(count.empty_s for count in counts)
        return Standing(limit, max(0, limit - used), max(0.0, last_s - now))

    def _too_many_running(self, limit: int) -> Denial | None:
        running = self.running + sum(there.running for there in self.elsewhere.values())
        return Denial("concurrent requests", limit, RETRY_RUNNING_S) if limit and running >= limit else None

    def _too_many(self, kind: Kind, limit: int, now: float) -> Denial | None:
        counts = self._counts(kind)
        used = sum(count.total(now) for count in counts)
        if not limit or used < limit:
            return None
        return Denial(kind, limit, _until_left(counts, used - limit + 1, now))

    def _counts(self, kind: Kind) -> list[Sliding]:
        if kind == "requests":
            return [self.requests, *(there.requests for there in self.elsewhere.values())]
        return [self.tokens, *(there.tokens for there in self.elsewhere.values())]


def _until_left(counts: list[Sliding], excess: int, now: float) -> float:
    """Return the seconds until at least `excess` of what is counted have left the window."""
    for moment_s, count in sorted(pair for sliding in counts for pair in sliding.leaving()):
        excess -= count
        if excess <= 0:
            return max(0.0, moment_s - now)
    return WINDOW_S
