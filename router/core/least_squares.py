"""Recursive least squares that forgets only what new evidence replaces, and is not led astray by one odd sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from operator import mul

KEEP_RATIO = 0.98
"""Weight that the past keeps in the direction of each new sample: about the last 50 of a kind speak."""

MIN_SAMPLES = 4
"""Samples before the fit is believed: one may have waited for a hiccup, the median of four has not."""

CLIP_RATIO = 2.0
"""A sample further off than this counts as this far off. Decoding beside it slows a prefill by less, mostly."""

CHANGE_SAMPLES = 8
"""So many surprises in a row, all to one side, are no outliers any more: the engine's speed has changed."""

RUN_RATIO = 1.4
"""A sample that is off by more is a surprise: it may come by chance, eight of them in a row do not."""

WANDER_RATIO = 0.005
"""How much more doubtful the speed as a whole becomes at each sample, 1 being what one sample says of it: about the
last 15 speak of it, and a speed that changes by 40 %, too little to surprise, is followed within 50 samples."""

ROUNDING = 1e-12
"""Nothing here is as small as this and means anything: noise is about 1."""

Sample = tuple[Sequence[float], float, float]
"""Features, y, and what y is uncertain by in any case."""


class LeastSquares:
    """y = sum of coefficient x feature, all coefficients >= 0. The caller divides rows by the noise that it expects.

    Directional forgetting as of Kulhavý, "Restricted exponential forgetting in real-time identification", Automatica
    23(5), 1987: the covariance grows only along a sample's features, so that neither idle times nor a thousand equal
    samples make it forget the rest.
    """

    __slots__ = ("_covariance", "_free", "_run", "_side", "coefficients", "samples")

    def __init__(self, coefficients: Sequence[float], variances: Sequence[float]) -> None:
        """Start from `coefficients`, each as doubtful as its variance says: 1 is worth one sample of feature 1."""
        self.coefficients = list(coefficients)
        """The present estimate, each >= 0."""
        self.samples = 0
        """Samples taken in, at most `MIN_SAMPLES`."""
        self._free = list(coefficients)
        self._covariance = _diagonal(variances)
        self._run: list[Sample] = []
        self._side = 0

    @property
    def measured(self) -> bool:
        """Tell whether there is evidence enough; until then the estimate is what it was started from."""
        return self.samples >= MIN_SAMPLES

    def assume(self, coefficients: Sequence[float]) -> None:
        """Start from others, as long as nothing is measured."""
        if not self.measured:
            self.coefficients, self._free = list(coefficients), list(coefficients)

    def predict(self, features: Sequence[float]) -> float:
        """Return y as estimated."""
        return _dot(self.coefficients, features)

    def observe(self, features: Sequence[float], y: float, floor: float) -> None:
        """Learn from a sample. `floor`: what y is uncertain by in any case, above 0; so near, it is no surprise."""
        sample = features, y, floor
        self._put_by(sample, self._ratio(sample))
        if not self.measured:
            self._count()
        elif len(self._run) >= CHANGE_SAMPLES:
            self._rescale()
        else:
            self.learn(features, self._clipped(sample))

    def _count(self) -> None:
        self.samples += 1
        if self.measured:
            self._rescale()

    def _ratio(self, sample: Sample) -> float:
        features, y, floor = sample
        return (y + floor) / (self.predict(features) + floor)

    def _put_by(self, sample: Sample, ratio: float) -> None:
        """Keep the sample if it is as surprising as those before it, or begin anew."""
        side = (ratio > RUN_RATIO) - (ratio < 1 / RUN_RATIO)
        if self.measured and side != self._side:
            self._run.clear()
        self._side = side
        if side or not self.measured:
            self._run.append(sample)

    def _rescale(self) -> None:
        """Take all to be slower or faster by the median of the samples put by, then learn from them."""
        samples, self._run = self._run, []
        ratios = sorted(map(self._ratio, samples))
        median = ratios[(len(ratios) - 1) // 2]
        self._free = [c * median for c in self.coefficients]
        self.coefficients = list(self._free)
        for sample in samples:
            self.learn(sample[0], self._clipped(sample))

    def _clipped(self, sample: Sample) -> float:
        features, y, floor = sample
        expected = self.predict(features) + floor
        return min(max(y, expected / CLIP_RATIO - floor), expected * CLIP_RATIO - floor)

    def learn(self, features: Sequence[float], y: float) -> None:
        """Learn from a sample that is believed as it is."""
        gain = [_dot(row, features) for row in self._covariance]
        known = _dot(gain, features)
        if known <= ROUNDING:
            return
        miss = (y - _dot(self._free, features)) / (1 + known)
        self._free = [c + g * miss for c, g in zip(self._free, gain, strict=True)]
        shrink = (KEEP_RATIO - (1 - KEEP_RATIO) / known) / (KEEP_RATIO * (1 + known))
        self._covariance = [_less(row, gain, own * shrink) for row, own in zip(self._covariance, gain, strict=True)]
        self.coefficients = self._projected()
        self._wander()

    def _wander(self) -> None:
        """Let the speed as a whole, which is what changes, be doubted a little more at each sample."""
        level = sum(self.coefficients)
        if level > ROUNDING:
            speed = [c / level for c in self.coefficients]
            self._covariance = [
                _less(row, speed, -WANDER_RATIO * own) for row, own in zip(self._covariance, speed, strict=True)
            ]

    def _projected(self) -> list[float]:
        """Return the best estimate without negative coefficients: the others make up for each that is set to 0."""
        estimate, covariance = self._free, self._covariance
        while (least := min(estimate)) < 0:
            at = estimate.index(least)
            if covariance[at][at] <= ROUNDING:
                return [max(0.0, c) for c in estimate]
            estimate, covariance = _without(at, estimate, covariance)
        return estimate

    @property
    def state(self) -> tuple[float, ...]:
        """What was learnt, as `resume` takes it. Samples that are put by are not in it."""
        samples = self.samples if self.measured else 0
        return (float(samples), *self._free, *(c for row in self._covariance for c in row))

    def resume(self, state: Sequence[float]) -> None:
        """Go on from another's `state`. ValueError: it is none, or one of another number of features."""
        size = len(self._free)
        if len(state) != 1 + size + size * size or not all(map(isfinite, state)):
            raise ValueError(f"not the state of a fit of {size} coefficients")
        self.samples, self._free, self._run, self._side = int(state[0]), list(state[1 : size + 1]), [], 0
        cells = state[size + 1 :]
        self._covariance = [list(cells[at : at + size]) for at in range(0, size * size, size)]
        self.coefficients = self._projected()


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return float(sum(map(mul, left, right)))


def _without(at: int, estimate: list[float], covariance: list[list[float]]) -> tuple[list[float], list[list[float]]]:
    """Return estimate and covariance, given that coefficient `at` is 0: conditioning a normal distribution."""
    column = [row[at] for row in covariance]
    pivot, share = column[at], estimate[at] / column[at]
    left = [c - own * share for c, own in zip(estimate, column, strict=True)]
    known = [_less(row, column, own / pivot) for row, own in zip(covariance, column, strict=True)]
    # Exactly 0, whatever rounding says, or it would be looked at again.
    left[at] = 0.0
    known[at] = [0.0] * len(column)
    for row in known:
        row[at] = 0.0
    return left, known


def _less(row: Sequence[float], other: Sequence[float], share: float) -> list[float]:
    return [c - o * share for c, o in zip(row, other, strict=True)]


def _diagonal(values: Sequence[float]) -> list[list[float]]:
    return [[value if i == j else 0.0 for j in range(len(values))] for i, value in enumerate(values)]
