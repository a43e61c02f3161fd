"""What a replica's work costs in seconds: a prefill by its tokens, a decode step by its batch. Learnt from answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from router.core.least_squares import LeastSquares

MIN_SAMPLE_TOKENS = 256
"""Prefills shorter than this say more about fixed costs (a step, the network) than about the rate."""

LEAST_KEEP_RATIO = 0.98
"""Share of the fastest answer in one piece that is believed at each new one: about the last 50 speak."""

RELOAD_RATIO = 0.1
"""A reloaded token's seconds to a computed one's, before any was timed: PCIe moves 10 GB/s, which is 80,000 tokens/s of
an 8B model's cache (131,072 bytes a token in 16 bits, 8 heads of 128, 32 layers) against 8,000 tokens/s computed."""

LEAST_TOKEN_S = 1e-8
"""No token is cheaper: ten times what the fastest engines reach. It keeps costs above 0 and speeds finite."""

FLOOR_S = 0.01
"""Half a decode step: by so much a first byte comes late by chance alone."""

TYPICAL_TOKENS = 2_000.0
"""Uncached tokens of a typical prefill until some were seen: a chat's turn with a pasted page."""

TYPICAL_KEEP_RATIO = 0.98
"""Weight that the past keeps in what is typical: about the last 50 prefills speak."""

SQUARE_TOKENS = 1e7
"""Scale of n (p + n/2): what 2,000 tokens behind 4,000 are, so that all features are about 1."""

NOISE_RATIO = 0.3
"""Noise of the shortest prefills, 1 being what a thousand tokens add to it: a step that they wait for."""

PAIR_RATIO = 0.3
"""Seconds of `SQUARE_TOKENS` pairs to those of a thousand tokens, where noise is judged: an 8B model has 4 x 4,096 x 32
operations a pair (attention, all layers) and 16 billion a token, so 5.2e12 to 16e12."""

LONGEST_S = 3_600.0
"""Times above say nothing of an engine's speed."""

MOST_TOKENS = 1e8
"""Prompts above this are a mistake of whoever counted."""

STEP_S = 0.02
"""Seconds of a decode step of one sequence, before any was timed: an 8B model in 16 bits on a card of 1 TB/s."""

STEP_PER_SEQUENCE_S = 0.0003
"""Seconds that each sequence adds, before any was timed: as the simulated engine's."""

STEP_FLOOR_S = 0.0005
"""What a step's time is uncertain by in any case: a fifth of that of the quickest engines."""

BATCH_SEQUENCES = 32.0
"""Scale of the batch as a feature."""

CONTEXT_TOKENS = 100_000.0
"""Scale of the batch's context as a feature: 32 sequences of 3,000 tokens."""


class PrefillCost:
    """Seconds of a prefill: a + b n + c n (p + n/2) + r x, n tokens computed behind p cached ones, x reloaded.

    n (p + n/2) is the number of pairs that attention sees: each new token all p before it and, on average, half of the
    new ones. Before anything was timed it is n / `prior_tokens_per_s`, plus a tenth of that for a reloaded token.
    """

    __slots__ = ("_base_s", "_cached", "_fit", "_pair_s", "_reload_s", "_token_s", "_uncached",
                 "least_tokens_per_s", "tokens_per_s")  # fmt: skip

    def __init__(self, prior_tokens_per_s: float) -> None:
        """`prior_tokens_per_s`: above 0."""
        thousand_s = 1_000 / prior_tokens_per_s
        # A constant, and attention, are worth less than the tokens themselves in a typical prefill.
        self._fit = LeastSquares((0.0, thousand_s, 0.0, RELOAD_RATIO * thousand_s), (0.3, 1.0, 0.3, 0.3))
        self._uncached, self._cached = TYPICAL_TOKENS, 0.0
        self.least_tokens_per_s = 0.0
        """Uncached tokens per second that it has reached of late at the least. Too rough to compare replicas by."""
        self._publish()

    @property
    def measured(self) -> bool:
        """Tell whether enough prefills were timed; until then the costs are assumptions."""
        return self._fit.measured

    @property
    def coefficients(self) -> tuple[float, float, float, float]:
        """The four: a in seconds, b in seconds a token, c in seconds a pair of tokens, r in seconds a reload."""
        return self._base_s, self._token_s, self._pair_s, self._reload_s

    def seconds(self, uncached: float, cached: float = 0.0, reloaded: float = 0.0) -> float:
        """Return the seconds of a prefill of `uncached` tokens behind `cached` ones, of which `reloaded` are fetched.

        All are token counts from 0 to 1e12. Above 0 for any uncached token, and never less for more of any of them.
        """
        token_s = self._token_s + self._pair_s * (cached + 0.5 * uncached)
        return self._base_s + uncached * token_s + self._reload_s * reloaded

    def assume(self, other: PrefillCost, weight_ratio: float = 1.0) -> None:
        """Believe in another's costs, at `weight_ratio` (above 0) times its speed, until this one's are measured."""
        if not self.measured:
            self._fit.assume([c / weight_ratio for c in other._fit.coefficients])
            self._uncached, self._cached = other._uncached, other._cached
            self._publish()

    @classmethod
    def mean(cls, costs: Iterable[tuple[PrefillCost, float]]) -> PrefillCost:
        """Return the mean of a fleet's costs, each given with the replica's weight. ValueError: there are none.

        Its speed is the mean of the speeds, each divided by its weight; its shape that of the mean coefficients.
        """
        weighed = list(costs)
        if not weighed:
            raise ValueError("the mean of no costs")
        count = len(weighed)
        mean = cls(sum(cost.tokens_per_s / weight for cost, weight in weighed) / count)
        speed = mean.tokens_per_s
        rows = [[c * weight for c in cost._fit.coefficients] for cost, weight in weighed]
        mean._fit.assume([sum(column) / count for column in zip(*rows, strict=True)])
        mean._uncached = sum(cost._uncached for cost, _ in weighed) / count
        mean._cached = sum(cost._cached for cost, _ in weighed) / count
        mean._publish()
        mean._fit.assume([c * mean.tokens_per_s / speed for c in mean._fit.coefficients])
        mean._publish()
        return mean

    def observe(self, uncached: float, cached: float, elapsed_s: float, reloaded: float = 0.0) -> None:
        """Learn from one prefill, timed from its dispatch or its predecessor's first byte, the later.

        Token counts above 1e8 and times outside 0 to 3,600 s teach nothing. A short prefill, which may have shared
        its step with others, teaches the constant only, and that only once the rest is known.
        """
        if not _sane(uncached, cached, reloaded, elapsed_s):
            return
        if uncached + reloaded < MIN_SAMPLE_TOKENS:
            self._observe_constant(uncached, cached, elapsed_s, reloaded)
            return
        thousands, pairs = uncached / 1_000, uncached * (cached + 0.5 * uncached) / SQUARE_TOKENS
        # Noise grows with a prefill's length, so long ones are not to outvote short ones.
        noise = NOISE_RATIO + thousands + PAIR_RATIO * pairs + RELOAD_RATIO * reloaded / 1_000
        features = (1.0 / noise, thousands / noise, pairs / noise, reloaded / 1_000 / noise)
        self._fit.observe(features, elapsed_s / noise, FLOOR_S / noise)
        self._note_typical(uncached, cached)
        self._publish()

    def _observe_constant(self, uncached: float, cached: float, elapsed_s: float, reloaded: float) -> None:
        rest_s = self.seconds(uncached, cached, reloaded) - self._base_s
        if self.measured and abs(elapsed_s - rest_s - self._base_s) <= self._base_s + FLOOR_S:
            self._fit.learn((1.0, 0.0, 0.0, 0.0), max(0.0, elapsed_s - rest_s))
            self._publish()

    def _note_typical(self, uncached: float, cached: float) -> None:
        self._uncached += (1 - TYPICAL_KEEP_RATIO) * (uncached - self._uncached)
        self._cached += (1 - TYPICAL_KEEP_RATIO) * (cached - self._cached)

    def at_least(self, uncached: float, elapsed_s: float) -> None:
        """Learn from an answer in one piece, whose time has its generation in it: only that it is not slower."""
        if elapsed_s > 0:
            self.least_tokens_per_s = max(uncached / elapsed_s, self.least_tokens_per_s * LEAST_KEEP_RATIO)

    def _publish(self) -> None:
        base, thousand_s, square_s, reload_s = self._fit.coefficients
        self._base_s = base
        self._token_s = max(LEAST_TOKEN_S, thousand_s / 1_000)
        self._pair_s = square_s / SQUARE_TOKENS
        self._reload_s = reload_s / 1_000
        self.tokens_per_s = 1 / (self._token_s + self._pair_s * (self._cached + 0.5 * self._uncached))
        """Uncached tokens per second in a prompt as they come here, the constant apart."""

    @property
    def state(self) -> tuple[float, ...]:
        """What was learnt, as `resume` takes it."""
        return (self._uncached, self._cached, self.least_tokens_per_s, *self._fit.state)

    def resume(self, state: Sequence[float]) -> None:
        """Go on from another's `state`. ValueError: it is none."""
        self._fit.resume(state[3:])
        self._uncached, self._cached, self.least_tokens_per_s = state[:3]
        self._publish()


class DecodeCost:
    """Seconds of one decode step: d + e x sequences in the batch + f x tokens of context, summed over the batch."""

    __slots__ = ("_fit",)

    def __init__(self) -> None:
        self._fit = LeastSquares((STEP_S, STEP_PER_SEQUENCE_S * BATCH_SEQUENCES, 0.0), (1.0, 1.0, 1.0))

    @property
    def measured(self) -> bool:
        """Tell whether enough answers were timed."""
        return self._fit.measured

    def step_s(self, batch: float, context: float = 0.0) -> float:
        """Return the seconds of a step, at least `LEAST_TOKEN_S`: of `batch` sequences with `context` tokens in all."""
        step, per_batch, per_context = self._fit.coefficients
        return max(LEAST_TOKEN_S, step + per_batch * batch / BATCH_SEQUENCES + per_context * context / CONTEXT_TOKENS)

    @classmethod
    def mean(cls, costs: Iterable[tuple[DecodeCost, float]]) -> DecodeCost:
        """Return the mean of costs, each given with its replica's weight; of none, what is believed of all at first."""
        mean, rows = cls(), [[c * weight for c in cost._fit.coefficients] for cost, weight in costs]
        if rows:
            mean._fit.assume([sum(column) / len(rows) for column in zip(*rows, strict=True)])
        return mean

    def crowding_s(self, batch: float, context: float, joining_tokens: float) -> float:
        """Return what one more sequence costs for each of its tokens: it is slower for the others, and they for it.

        A step has one token of each, so all wait for what each makes it longer. What a step takes by itself is left
        out: it is the same whoever else is there.
        """
        _, per_batch, per_context = self._fit.coefficients
        others_s = per_batch * batch / BATCH_SEQUENCES + per_context * context / CONTEXT_TOKENS
        added_s = per_batch / BATCH_SEQUENCES + per_context * joining_tokens / CONTEXT_TOKENS
        return others_s + batch * added_s

    def observe(self, batch: float, context: float, seconds_per_token: float) -> None:
        """Learn from one answer: the mean batch and context while it was generated, and its seconds per token."""
        if _sane(batch, context, 0.0, seconds_per_token):
            self._fit.observe((1.0, batch / BATCH_SEQUENCES, context / CONTEXT_TOKENS), seconds_per_token, STEP_FLOOR_S)

    def assume(self, other: DecodeCost, weight_ratio: float = 1.0) -> None:
        """Believe in another's costs, at `weight_ratio` (above 0) times its speed, until this one's are measured."""
        self._fit.assume([c / weight_ratio for c in other._fit.coefficients])

    @property
    def state(self) -> tuple[float, ...]:
        """What was learnt, as `resume` takes it."""
        return self._fit.state

    def resume(self, state: Sequence[float]) -> None:
        """Go on from another's `state`. ValueError: it is none."""
        self._fit.resume(state)


def _sane(first: float, second: float, third: float, elapsed_s: float) -> bool:
    counts = (first, second, third)
    return isfinite(sum(counts)) and min(counts) >= 0 and max(counts) <= MOST_TOKENS and 0 < elapsed_s <= LONGEST_S
