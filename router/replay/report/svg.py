"""One plot as inline SVG: axes, lines, marked points. Colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite

from router.replay.report.scale import Scale, tick_text

WIDTH, HEIGHT = 560, 300
"""Of the drawing; the page stretches it to what there is."""
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 12, 44
"""Margins: room for the ticks' text."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Mark:
    """A point with a word beside it."""

    at: Point
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """One run in a plot."""

    name: str
    style: int
    """The same policy has the same one in all plots."""
    points: Sequence[Point]
    marks: Sequence[Mark] = ()
    dotted: bool = False
    """Each point shows, as where lines have few."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with its title and what its axes mean."""

    title: str
    note: str
    x: Scale
    x_label: str
    y: Scale
    y_label: str
    lines: Sequence[Line]
    level: Mark | None = None
    """A height that is drawn through: its x counts for nothing."""


def drawn(plot: Plot) -> str:
    """The plot as an `svg` element."""
    label = escape(f"{plot.title}: {plot.y_label} against {plot.x_label}")
    inner = "".join([*_x_axis(plot), *_y_axis(plot), *_level(plot), *(_line(plot, line) for line in plot.lines)])
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{inner}</svg>'


def _text(kind: str, x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _x(plot: Plot, figure: float) -> float:
    return LEFT + plot.x.place(figure) * (WIDTH - LEFT - RIGHT)


def _y(plot: Plot, figure: float) -> float:
    return HEIGHT - BOTTOM - plot.y.place(figure) * (HEIGHT - TOP - BOTTOM)


def _x_axis(plot: Plot) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    for tick in plot.x.ticks():
        x = _x(plot, tick)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>'
        yield _text("tick", x, bottom + 16, "middle", tick_text(tick))
    yield f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _text("label", middle, HEIGHT - 8, "middle", plot.x_label)


def _y_axis(plot: Plot) -> Iterator[str]:
    for tick in plot.y.ticks():
        y = _y(plot, tick)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield _text("tick", LEFT - 7, y + 4, "end", tick_text(tick))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield (
        f'<text class="label" transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle">'
        f"{escape(plot.y_label)}</text>"
    )


def _level(plot: Plot) -> Iterator[str]:
    if plot.level is None or not plot.y.low <= plot.level.at[1] <= plot.y.high:
        return
    y = _y(plot, plot.level.at[1])
    yield f'<path class="level" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
    yield _text("mark", WIDTH - RIGHT - 4, y - 5, "end", plot.level.text)


def _line(plot: Plot, line: Line) -> str:
    path = _path(plot, line.points)
    dots = "".join(_dot(plot, point, 3) for point in _finite(line.points)) if line.dotted else ""
    marks = "".join(_mark(plot, mark) for mark in line.marks)
    name = f"<title>{escape(line.name)}</title>"
    return f'<g class="line-{line.style}">{name}<path class="line" d="{path}"/>{dots}{marks}</g>'


def _finite(points: Iterable[Point]) -> list[Point]:
    return [point for point in points if isfinite(point[0]) and isfinite(point[1])]


def _path(plot: Plot, points: Iterable[Point]) -> str:
    steps = (f"{_x(plot, x):.1f} {_y(plot, y):.1f}" for x, y in _finite(points))
    return "M" + "L".join(steps)


def _dot(plot: Plot, point: Point, radius: int) -> str:
    return f'<circle class="dot" cx="{_x(plot, point[0]):.1f}" cy="{_y(plot, point[1]):.1f}" r="{radius}"/>'


def _mark(plot: Plot, mark: Mark) -> str:
    """Its word stands above it, and to the side where there is room."""
    x, y = _x(plot, mark.at[0]), _y(plot, mark.at[1])
    anchor = "end" if x > WIDTH / 2 else "start"
    return _dot(plot, mark.at, 6) + _text("mark", x, max(TOP + 10, y - 9), anchor, mark.text)
