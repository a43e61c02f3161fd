"""Draws a state diagram of Mermaid's as a table of arrows: a column for each state, a row for each transition."""

from __future__ import annotations

import html
import re

COLUMN_PX = 68
BOX_PX = 62
TOP_PX = 40
LINE_PX = 18
GAP_PX = 8
LETTER_PX = 7

_TRANSITION = re.compile(r"^\s*(\S+) --> (\S+?)(?:: (.*))?$", re.MULTILINE)


def drawing(text: str) -> str:
    """The SVG of a `stateDiagram-v2`. That it begins at the first state is left out."""
    found = [(one, other, label) for one, other, label in _TRANSITION.findall(text) if one != "[*]"]
    names = list(dict.fromkeys(name for one, other, _ in found for name in (one, other)))
    rows = sorted((names.index(one), names.index(other), label.split(", or ")) for one, other, label in found)
    right, y, arrows = COLUMN_PX * len(names), TOP_PX, []
    for start, end, lines in rows:
        arrows.append(_row(y + LINE_PX, _middle(start), _middle(end), lines, right))
        y += LINE_PX * len(lines) + GAP_PX
    width = right + LETTER_PX * max(len(line) for *_, lines in rows for line in lines)
    parts = [*(_column(number, name, y) for number, name in enumerate(names)), *arrows]
    title = html.escape("; ".join(f"{one} to {other}: {label}" for one, other, label in found))
    return (
        f'<div class="states" data-search-exclude><svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{width}" height="{y + GAP_PX}" viewBox="0 0 {width} {y + GAP_PX}">'
        f"<title>{title}</title>{''.join(parts)}</svg></div>"
    )


def _middle(number: int) -> int:
    return COLUMN_PX * number + COLUMN_PX // 2


def _column(number: int, name: str, height: int) -> str:
    at = _middle(number)
    return (
        f'<path class="life" d="M{at} 32V{height}"/>'
        f'<rect x="{at - BOX_PX // 2}" y="6" width="{BOX_PX}" height="26" rx="4"/>'
        f'<text x="{at}" y="23" text-anchor="middle">{html.escape(name)}</text>'
    )


def _row(y: int, start: int, end: int, lines: list[str], right: int) -> str:
    way = 1 if end > start else -1
    spans = "".join(
        f'<tspan x="{right}" y="{y + 4 + LINE_PX * number}">{html.escape(("or " if number else "") + line)}</tspan>'
        for number, line in enumerate(lines)
    )
    return (
        f'<circle cx="{start}" cy="{y}" r="3"/><path class="arrow" d="M{start} {y}H{end - way * 2}"/>'
        f'<path class="tip" d="M{end} {y}l{-way * 9} -4.5v9z"/><text>{spans}</text>'
    )
