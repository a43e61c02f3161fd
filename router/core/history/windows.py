"""Counts in steps of time, and their sums over the last 5 minutes, hour and day.

Times are seconds of a clock that never goes back; here it is Unix time, so that steps begin at round times and mean the
same after a restart. A window is its open step and the closed ones before it: of 5 minutes, from 290 s to 300 s.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

FINE_S = 10
"""Five minutes in 30 columns, an hour in 360: about as many as a chart has room for."""

COARSE_S = 300
"""A day in 288 columns. A day's sum is wrong by its oldest step at the most, which is a third of a per cent."""

FINE_STEPS = COARSE_S // FINE_S


class Step(NamedTuple):
    """What was counted in one step: numbers that are not 0, 8 bytes each while they fit 32 bits."""

    number: int
    """Begin of the step / its length."""
    keys: array[int]
    values: array[int]

    def counts(self) -> dict[int, int]:
        """Return the numbers by key."""
        return dict(zip(self.keys, self.values, strict=True))


def packed(number: int, counts: Mapping[int, int]) -> Step:
    """Return a step that takes little memory."""
    some = {key: value for key, value in counts.items() if value}
    code = "I" if max(some.values(), default=0) < 1 << 32 else "Q"
    return Step(number, array("I", some), array(code, some.values()))


class Window:
    """The closed steps of a window, and their sum. Only steps in which something was counted are there."""

    __slots__ = ("length", "step_s", "steps", "sums")

    def __init__(self, step_s: int, length: int) -> None:
        """`length` in steps, the open one included."""
        self.step_s = step_s
        self.length = length
        self.steps: deque[Step] = deque()
        self.sums: dict[int, int] = {}

    def add(self, step: Step) -> None:
        """Take in a step that has just closed."""
        self.steps.append(step)
        sums = self.sums
        for key, value in zip(step.keys, step.values, strict=True):
            sums[key] = sums.get(key, 0) + value

    def expire(self, open_step: int) -> None:
        """Let go of what lies before the window."""
        sums = self.sums
        while self.steps and self.steps[0].number <= open_step - self.length:
            step = self.steps.popleft()
            for key, value in zip(step.keys, step.values, strict=True):
                left = sums.pop(key, 0) - value
                if left:
                    sums[key] = left


class Rolling:
    """Counts of the last day. Call `roll` before anything is counted or read."""

    def __init__(self, now: float) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)
        """Of the open step, by key; numbers >= 0. Another one after each step."""
        self.windows = {
            "5m": Window(FINE_S, 300 // FINE_S),
            "1h": Window(FINE_S, 3_600 // FINE_S),
            "24h": Window(COARSE_S, 86_400 // COARSE_S),
        }
        self._number = int(now // FINE_S)
        self._coarse: defaultdict[int, int] = defaultdict(int)
        """Closed fine steps of the open coarse one."""

    @property
    def ends_s(self) -> float:
        """When the open step ends."""
        return (self._number + 1) * FINE_S

    def roll(self, now: float) -> None:
        """Close the open step if its time is over."""
        number = int(now // FINE_S)
        if number <= self._number:
            return
        self._close_fine()
        if number // FINE_STEPS > self._number // FINE_STEPS:
            self._close_coarse()
        self._number = number
        for name, window in self.windows.items():
            window.expire(self.open_step(name))

    def _close_fine(self) -> None:
        if not self.counts:
            return
        step = packed(self._number, self.counts)
        self.windows["5m"].add(step)
        self.windows["1h"].add(step)
        _add(self._coarse, self.counts)
        self.counts = defaultdict(int)

    def _close_coarse(self) -> None:
        if self._coarse:
            self.windows["24h"].add(packed(self._number // FINE_STEPS, self._coarse))
            self._coarse = defaultdict(int)

    def open_step(self, name: str) -> int:
        """Return the number of a window's open step."""
        return self._number if self.windows[name].step_s == FINE_S else self._number // FINE_STEPS

    def totals(self, name: str) -> dict[int, int]:
        """Return what was counted in a window, by key."""
        totals = defaultdict(int, self.windows[name].sums)
        _add(totals, self._open(name))
        return dict(totals)

    def _open(self, name: str) -> dict[int, int]:
        """Return what was counted in a window's open step."""
        if self.windows[name].step_s == FINE_S:
            return self.counts
        both = self._coarse.copy()
        _add(both, self.counts)
        return both

    def steps(self, name: str) -> list[Step]:
        """Return a window's steps in which something was counted, oldest first; the last may be the open one."""
        counts = self._open(name)
        closed = list(self.windows[name].steps)
        return [*closed, packed(self.open_step(name), counts)] if counts else closed

    def resume(self, fine: Sequence[Step], coarse: Sequence[Step], now: float) -> None:
        """Go on from another's `steps` of an hour and of a day, of which what lies too far back is left out.

        Raises ValueError where they are not in order, or not of the past.
        """
        number = int(now // FINE_S)
        _check(fine, number)
        _check(coarse, number // FINE_STEPS)
        self._number = number
        for name, window in self.windows.items():
            last = self.open_step(name)
            for step in fine if window.step_s == FINE_S else coarse:
                if last - window.length < step.number < last:
                    window.add(step)
        self.counts = _last(fine, number)
        self._coarse = _last(coarse, number // FINE_STEPS)
        for key, value in self.counts.items():
            self._coarse[key] = max(0, self._coarse[key] - value)  # which has the open step as well


def _last(steps: Sequence[Step], number: int) -> defaultdict[int, int]:
    """Return what was counted in the last step, if it is that one."""
    return defaultdict(int, steps[-1].counts() if steps and steps[-1].number == number else {})


def _add(counts: defaultdict[int, int], more: Mapping[int, int]) -> None:
    for key, value in more.items():
        counts[key] += value


def _check(steps: Sequence[Step], open_step: int) -> None:
    last = -1
    for step in steps:
        if not last < step.number <= open_step:
            raise ValueError(f"step {step.number} after {last}, at {open_step}")
        last = step.number
