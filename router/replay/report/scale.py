"""From figures to places in a plot: linear and logarithmic scales with round ticks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

WANTED_TICKS = 5
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of figures. `low` < `high`; of a logarithmic one both are above 0."""

    low: float
    high: float
    log: bool = False

    def place(self, figure: float) -> float:
        """Where it stands: 0 at `low`, 1 at `high`. What lies outside is put at the border."""
        low, high, at = self.low, self.high, min(max(figure, self.low), self.high)
        if self.log:
            low, high, at = log10(low), log10(high), log10(at)
        return (at - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round figures within the range."""
        steps = self._log_ticks() if self.log else self._linear_ticks()
        return [tick for tick in steps if self.low <= tick <= self.high * (1 + 1e-9)]

    def _linear_ticks(self) -> list[float]:
        step = round_up((self.high - self.low) / WANTED_TICKS)
        return [number * step for number in range(ceil(self.low / step), floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self) -> list[float]:
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        steps = (1,) if self.high / self.low > 10**WANTED_TICKS else _STEPS
        return [step * 10.0**decade for decade in decades for step in steps]


def round_up(figure: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... and their like below 1. `figure` is above 0."""
    decade = 10.0 ** floor(log10(figure))
    return next(step * decade for step in (*_STEPS, 10) if step * decade >= figure * (1 - 1e-9))


def linear(figures: Iterable[float], low: float | None = None) -> Scale:
    """A scale that holds all of them, from `low` (else the least) to a round figure."""
    finite = [figure for figure in figures if isfinite(figure)]
    least = min(finite, default=0.0) if low is None else low
    most = max(finite, default=1.0)
    step = round_up((most - least) / WANTED_TICKS) if most > least else 1.0
    return Scale(least, least + step * max(1, ceil((most - least) / step - 1e-9)))


def logarithmic(figures: Iterable[float], least: float = 1e-3) -> Scale:
    """A scale that holds all of them; below `least` nothing is told apart."""
    finite = [max(figure, least) for figure in figures if isfinite(figure)]
    low, high = min(finite, default=least), max(finite, default=1.0)
    return Scale(low, high if high > low else low * 10, log=True)


def tick_text(figure: float) -> str:
    """A tick as it is written: 1k for a thousand, 1M for a million."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(figure) >= size:
            return f"{figure / size:.4g}{letter}"
    return f"{figure:.4g}"
