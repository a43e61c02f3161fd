"""Which plots a page has, from the curves of runs and the points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from router.replay.report.figures import CURVE_STEPS, Curves, Figures
from router.replay.report.scale import Scale, linear, logarithmic
from router.replay.report.svg import Line, Mark, Plot
from router.replay.sweep import Sweep, knee, least_enough

LOG_FROM_RATIO = 8
"""A sweep over more than this, from its first to its last value, is drawn on a logarithmic axis."""

_PERCENT = Scale(0.0, 100.0)


def run_plots(curves: Sequence[Curves]) -> list[Plot]:
    """Four plots of runs over the same fleet: waits, hits and waits over time, balance."""
    return [_distribution(curves), _hits_over_time(curves), _waits_over_time(curves), _balance(curves)]


def _distribution(curves: Sequence[Curves]) -> Plot:
    scale = logarithmic(chain.from_iterable(run.ttfts_s for run in curves))
    lines = [
        Line(run.policy, style, [(at_s, step * 100 / CURVE_STEPS) for step, at_s in enumerate(run.ttfts_s)])
        for style, run in enumerate(curves)
    ]
    note = "The share of requests that had their first token by then: further left is better."
    return Plot("Time to first token", note, scale, "seconds", _PERCENT, "% of requests", lines)


def _minutes(curves: Sequence[Curves]) -> Scale:
    minutes = [moment.minute for run in curves for moment in run.moments]
    return Scale(min(minutes, default=0.0), max(minutes, default=0.0) or 1.0) if len(minutes) > 1 else Scale(0.0, 1.0)


def _hits_over_time(curves: Sequence[Curves]) -> Plot:
    lines = [
        Line(run.policy, style, [(one.minute, one.hit_ratio * 100) for one in run.moments])
        for style, run in enumerate(curves)
    ]
    heights = linear((y for line in lines for _, y in line.points), low=0.0)
    note = "Prompt tokens that were found cached: higher is better."
    return Plot("Hit rate over time", note, _minutes(curves), "minutes", heights, "% of tokens", lines)


def _waits_over_time(curves: Sequence[Curves]) -> Plot:
    lines = [
        Line(run.policy, style, [(one.minute, one.ttft_p95_s) for one in run.moments])
        for style, run in enumerate(curves)
    ]
    heights = linear((y for line in lines for _, y in line.points), low=0.0)
    note = "95th percentile of what arrived in each step: lower is better."
    return Plot("TTFT p95 over time", note, _minutes(curves), "minutes", heights, "seconds", lines)


def _balance(curves: Sequence[Curves]) -> Plot:
    lines = [
        Line(run.policy, style, list(_ranked(run.uncached_tokens)), dotted=len(run.uncached_tokens) <= 32)
        for style, run in enumerate(curves)
    ]
    replicas = max((len(run.uncached_tokens) for run in curves), default=1)
    heights = linear((y for line in lines for _, y in line.points), low=0.0)
    note = "Prompt tokens that each replica had to compute: lower and flatter is better."
    ranks = Scale(1.0, float(max(2, replicas)))
    return Plot("Uncached tokens by replica", note, ranks, "replicas, the busiest first", heights, "tokens", lines)


def _ranked(counts: Sequence[int]) -> list[tuple[float, float]]:
    return [(rank, float(count)) for rank, count in enumerate(counts, 1)]


def sweep_plots(sweep: Sweep, points: Mapping[str, Sequence[Figures]], target_s: float) -> list[Plot]:
    """Two plots of a sweep: hits with each policy's knee, TTFT p95 with the least value that is enough."""
    values = [float(value) for value in sweep.values]
    log = values[-1] > values[0] * LOG_FROM_RATIO
    x = Scale(values[0], values[-1], log) if len(values) > 1 else linear([0.0, values[0]])
    return [_swept_hits(sweep, points, x), _swept_waits(sweep, points, x, target_s)]


def _label(sweep: Sweep) -> str:
    return "replicas" if sweep.swept == "replicas" else "KV tokens a replica"


def _swept_hits(sweep: Sweep, points: Mapping[str, Sequence[Figures]], x: Scale) -> Plot:
    lines = []
    for style, (policy, figures) in enumerate(points.items()):
        places = [(float(sweep.value_of(one)), one.hit_ratio * 100) for one in figures]
        bend = knee([place[0] for place in places], [place[1] for place in places])
        marks = [Mark(places[bend], "knee")] if bend is not None else []
        lines.append(Line(policy, style, places, marks if style == 0 else (), dotted=True))
    heights = linear((y for line in lines for _, y in line.points), low=0.0)
    note = "The knee of the first policy is marked: from there on more brings less."
    return Plot("Hit rate", note, x, _label(sweep), heights, "% of tokens", lines)


def _swept_waits(sweep: Sweep, points: Mapping[str, Sequence[Figures]], x: Scale, target_s: float) -> Plot:
    lines = []
    for style, (policy, figures) in enumerate(points.items()):
        enough = least_enough(sweep, figures, target_s)
        places = [(float(sweep.value_of(one)), one.ttft_p95_s) for one in figures]
        marks = [Mark((float(sweep.value_of(enough)), enough.ttft_p95_s), "enough")] if enough and style == 0 else ()
        lines.append(Line(policy, style, places, marks, dotted=True))
    heights = logarithmic([target_s, *(y for line in lines for _, y in line.points)])
    level = Mark((0.0, target_s), f"{target_s:g} s")
    note = "The least that keeps the first policy at the target is marked."
    return Plot("TTFT p95", note, x, _label(sweep), heights, "seconds", lines, level)
