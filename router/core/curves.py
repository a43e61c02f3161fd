"""How long sessions stay away: curves over idle time, and the published ones to start from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import erf, exp, expm1, log, log1p, sqrt
from typing import NamedTuple

FIRST_S = 0.5
"""End of the first bin: a session back within that keeps its blocks whatever is decided."""

LAST_S = 14_400.0
"""Four hours: who comes back later finds nothing in any cache, and counts as never back."""

BINS = 24
"""The first, and 23 of equal width in the logarithm, each 1.56 times as long as the one before."""

EDGES_S: tuple[float, ...] = (0.0, *(FIRST_S * (LAST_S / FIRST_S) ** (step / (BINS - 1)) for step in range(BINS)))
"""Where bins begin and end."""

_STEPS_PER_LOG = (BINS - 1) / log(LAST_S / FIRST_S)

TURN_BUCKETS = ("1", "2", "3-4", "5-8", "9+")
"""Numbers of the turn that ended, 1 being a session's first."""


class ReturnClass(NamedTuple):
    """Sessions that come back alike."""

    tool_calls: bool
    """The answer asked for tools (finish reason `tool_calls`): a program answers, not a human."""
    bucket: int
    """Index of the turn's number in `TURN_BUCKETS`."""
    from_tool: bool
    """The last message of the prompt was a tool's: an agent at work, and its final answer if it asks for none."""

    @classmethod
    def of(cls, finish_reason: str | None, turn: int, from_tool: bool) -> ReturnClass:
        """Return the class of a turn that ended. `turn`: from 1; less counts as 1."""
        return cls(finish_reason == "tool_calls", min((max(1, turn) - 1).bit_length(), 4), from_tool)


CLASSES = tuple(
    ReturnClass(tool_calls, bucket, from_tool)
    for tool_calls in (False, True)
    for bucket in range(len(TURN_BUCKETS))
    for from_tool in (False, True)
)
"""All of them, in the order of `Returns.state`."""

CLASS_INDEX = {kind: index for index, kind in enumerate(CLASSES)}


class Published(NamedTuple):
    """A measured class: who comes back at all does so after a log-normal time."""

    returned_ratio: float
    """Share that comes back, 0 to 1."""
    median_s: float
    """Half of those are back by then."""
    sigma: float
    """Standard deviation of the time's natural logarithm."""


AFTER_TOOL_CALLS = Published(0.99, 9.0, 1.24)
"""18,290 turns of 342 recorded coding-agent sessions (kv-cache-tester's traces)."""

AFTER_AGENTS_ANSWER = Published(0.87, 183.0, 1.8)
"""Final answers in the same sessions."""

AFTER_CHAT = tuple(Published(ratio, 126.0, 1.1) for ratio in (0.25, 0.39, 0.51, 0.66, 0.77))
"""By the turn's number: an hour of a chat service, 12,031 requests (Mooncake's conversation trace)."""


def published(kind: ReturnClass) -> Published:
    """Return what a class is taken for before anything is seen."""
    if kind.tool_calls:
        return AFTER_TOOL_CALLS
    return AFTER_AGENTS_ANSWER if kind.from_tool else AFTER_CHAT[kind.bucket]


def published_hazards(kind: ReturnClass) -> tuple[float, ...]:
    """Return for each bin the share of those still away at its begin that is back at its end, each below 1."""
    ratio, median_s, sigma = published(kind)

    def by(idle_s: float) -> float:
        return 0.5 * (1 + erf(log(idle_s / median_s) / (sigma * sqrt(2)))) if idle_s > 0 else 0.0

    # All that come back at all are back within the last bin.
    back = [ratio * by(edge_s) / by(LAST_S) for edge_s in EDGES_S]
    return tuple((after - before) / (1 - before) for before, after in pairwise(back))


class Curve:
    """The share of sessions still away as a function of idle time: within a bin straight over the log of time."""

    __slots__ = ("_log_away",)

    def __init__(self, hazards: Sequence[float]) -> None:
        """`hazards`: as `published_hazards` gives them, each from 0 to below 1."""
        log_away = [0.0]
        for hazard in hazards:
            log_away.append(log_away[-1] + log1p(-hazard))
        log_away.append(log_away[-1])  # what rounding may reach for
        self._log_away = log_away

    def _log_away_at(self, idle_s: float) -> float:
        if idle_s >= LAST_S:
            return self._log_away[-1]
        if idle_s < FIRST_S:
            return self._log_away[1] * max(0.0, idle_s) / FIRST_S
        steps = log(idle_s / FIRST_S) * _STEPS_PER_LOG
        step = int(steps)
        begin, end = self._log_away[step + 1 : step + 3]
        return begin + (steps - step) * (end - begin)

    def chance(self, idle_s: float, within_s: float) -> float:
        """Return the chance, 0 to 1, that who is away for `idle_s` is back within the next `within_s` (may be inf)."""
        if within_s <= 0:
            return 0.0
        return max(0.0, -expm1(self._log_away_at(max(0.0, idle_s) + within_s) - self._log_away_at(idle_s)))

    def horizon_s(self, least_chance: float) -> float:
        """Return the idle time from which on the chance of any return is below `least_chance`, 0 to `LAST_S`."""
        if least_chance <= 0 or least_chance >= 1:
            return LAST_S if least_chance <= 0 else 0.0
        log_away = self._log_away
        target = log_away[-1] - log1p(-least_chance)
        if target > 0:
            return 0.0
        step = next(step for step in range(BINS + 1) if log_away[step] <= target)
        if step < 2:
            return FIRST_S * target / log_away[1] if step else 0.0
        share = (log_away[step - 1] - target) / (log_away[step - 1] - log_away[step])
        return min(LAST_S, EDGES_S[step - 1] * exp(share / _STEPS_PER_LOG))

    @property
    def points(self) -> list[tuple[float, float]]:
        """Idle seconds and the share that is back by then, at each edge."""
        return [(edge_s, 1 - exp(away)) for edge_s, away in zip(EDGES_S, self._log_away, strict=False)]
