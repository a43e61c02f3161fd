"""The same traffic over fleets of several sizes: how much memory, how many replicas are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Literal

from router.replay.plan import Plan
from router.replay.report.figures import Figures

Swept = Literal["kv-tokens", "replicas"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is varied, and its values, ascending and each once."""

    swept: Swept
    values: tuple[int, ...]

    def plans(self, plan: Plan) -> list[Plan]:
        """Return the plan with each of the values."""
        if self.swept == "replicas":
            return [replace(plan, replicas=value) for value in self.values]
        return [replace(plan, engine=replace(plan.engine, kv_tokens=value)) for value in self.values]

    def value_of(self, figures: Figures) -> int:
        """The value that a run was made with."""
        return figures.replicas if self.swept == "replicas" else figures.kv_tokens


def least_enough(sweep: Sweep, points: Sequence[Figures], target_s: float) -> Figures | None:
    """Return the point of one policy with the least value from which on TTFT p95 is at most `target_s`, or None.

    A smaller value that meets it by luck, with a larger one that does not, is not enough.
    """
    enough = None
    for point in sorted(points, key=sweep.value_of, reverse=True):
        if isnan(point.ttft_p95_s) or point.ttft_p95_s > target_s:
            break
        enough = point
    return enough


def answer(sweep: Sweep, points: Sequence[Figures], target_s: float) -> str:
    """Say in one sentence what one policy needs to keep TTFT p95 at `target_s`."""
    policy = points[0].policy
    enough = least_enough(sweep, points, target_s)
    if enough is None:
        best = min(points, key=lambda point: float("inf") if isnan(point.ttft_p95_s) else point.ttft_p95_s)
        return (
            f"{policy}: none of these keeps TTFT p95 at {target_s:g} s or less; "
            f"closest: {_size(sweep, best)}, with {best.ttft_p95_s:.2f} s."
        )
    least = " already" if sweep.value_of(enough) == sweep.values[0] else ""
    verb = "is" if sweep.swept == "replicas" and enough.replicas == 1 else "are"
    return (
        f"{policy}: {_size(sweep, enough)} {verb}{least} enough for a TTFT p95 of {target_s:g} s or less: "
        f"{enough.ttft_p95_s:.2f} s, with {enough.hit_ratio * 100:.1f} % of prompt tokens from cache."
    )


def _size(sweep: Sweep, point: Figures) -> str:
    if sweep.swept == "replicas":
        return fleet_text(point.replicas, point.kv_tokens)
    return f"{point.kv_tokens:,} KV tokens on each of {replicas_text(point.replicas)}"


def fleet_text(replicas: int, kv_tokens: int) -> str:
    """How large a fleet is, in words."""
    return f"{replicas_text(replicas)} of {kv_tokens:,} KV tokens"


def replicas_text(replicas: int) -> str:
    """How many there are, in words."""
    return "1 replica" if replicas == 1 else f"{replicas:,} replicas"


def knee(values: Sequence[float], heights: Sequence[float]) -> int | None:
    """Return the number of the point that lies furthest above the line from a rising curve's first to its last point.

    Kneedle's rule (Satopaa et al., "Finding a kneedle in a haystack", 2011) without its smoothing: from there on more
    brings less. None where no point lies above the line, as of fewer than three.
    """
    width, height = values[-1] - values[0], heights[-1] - heights[0]
    if not width or not height:
        return None
    above = [
        (heights[number] - heights[0]) / height - (values[number] - values[0]) / width for number in range(len(values))
    ]
    best = max(range(len(values)), key=above.__getitem__)
    return best if above[best] > 0.0 else None
