"""Which rung is recommended, and why, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan

from router.replay.advice.ladder import Kind, Rung
from router.replay.report.figures import Figures

MOST_REFUSED_RATIO = 0.01
"""Of requests: who sends more away has a short waiting line for the wrong reason."""

ALIKE_RATIO = 1.05
"""Two p95 this near to each other are no reason to pay for the lower one: seeds differ by as much."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A rung and what its run showed."""

    rung: Rung
    figures: Figures

    @property
    def p95_s(self) -> float:
        """TTFT; infinite where it says nothing."""
        return inf if isnan(self.figures.ttft_p95_s) else self.figures.ttft_p95_s

    @property
    def sound(self) -> bool:
        """Whether its TTFT is that of nearly all who asked."""
        return self.figures.refused_ratio <= MOST_REFUSED_RATIO

    def meets(self, target_s: float) -> bool:
        """Whether TTFT p95 is within the target."""
        return self.sound and self.p95_s <= target_s


@dataclass(frozen=True, slots=True)
class Choice:
    """What is recommended."""

    chosen: Tried
    met: bool
    reason: str


def choose(tried: Sequence[Tried], target_s: float) -> Choice:
    """Return the cheapest rung that meets the target, else the cheapest of the best ones. `tried`: the free one first.

    Pinning is not among them: it is there to be compared with.
    """
    ranked = sorted((one for one in tried if one.rung.kind is not Kind.PIN), key=_cost)
    free = tried[0]
    for one in ranked:
        if one.meets(target_s):
            return Choice(one, True, _why_enough(free, one, target_s, _unchanged(ranked, one, target_s)))
    fit = [one for one in ranked if one.sound] or ranked
    best_s = min(one.p95_s for one in fit)
    chosen = next(one for one in fit if one.p95_s <= best_s * ALIKE_RATIO)
    return Choice(chosen, False, _why_best(free, chosen, target_s))


def _cost(tried: Tried) -> tuple[int, int]:
    size = tried.rung.size
    # Of histories the longest is the cheapest: it takes least from what the model sees.
    return list(Kind).index(tried.rung.kind), -size if tried.rung.kind is Kind.SHORTEN else size


def _unchanged(ranked: Sequence[Tried], chosen: Tried, target_s: float) -> str:
    """What else there is, where the recommendation takes from what the model sees."""
    if chosen.rung.kind is not Kind.SHORTEN:
        return ""
    others = [one for one in ranked if one.rung.kind is not Kind.SHORTEN and one.meets(target_s)]
    if not others:
        return " Nothing that leaves prompts as they are reaches it."
    return f" Of what leaves prompts as they are, {others[0].rung.name} does: {others[0].p95_s:.2f} s."


def _why_enough(free: Tried, chosen: Tried, target_s: float, kept: str) -> str:
    if chosen is free:
        return (
            f"As it is, TTFT p95 is {free.p95_s:.2f} s, within the target of {target_s:g} s. Nothing need be paid for."
        )
    return f"{_as_it_is(free, target_s)} {_effect(free, chosen)} Of what reaches the target, it costs least.{kept}"


def _why_best(free: Tried, chosen: Tried, target_s: float) -> str:
    if chosen is free:
        return f"{_as_it_is(free, target_s)} Nothing that was tried is better by more than 5 %, so leave it as it is."
    return f"{_as_it_is(free, target_s)} Nothing that was tried reaches it. {_effect(free, chosen)}"


def _as_it_is(free: Tried, target_s: float) -> str:
    refused = f", and {free.figures.refused_ratio:.1%} of requests are sent away" if not free.sound else ""
    return f"As it is, TTFT p95 is {free.p95_s:.2f} s{refused}; the target is {target_s:g} s."


def _effect(free: Tried, chosen: Tried) -> str:
    return (
        f"With this, {chosen.figures.hit_ratio:.1%} of prompt tokens come from cache instead of "
        f"{free.figures.hit_ratio:.1%}, and TTFT p95 is {chosen.p95_s:.2f} s."
    )
