"""One page without a network: the table, the answer, the plots, what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from router.replay.report.rows import COLUMNS, Row, headings
from router.replay.report.style import style_sheet
from router.replay.report.svg import Plot, drawn


@dataclass(frozen=True, slots=True)
class Section:
    """A table with its caption."""

    caption: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows."""

    title: str
    policies: Sequence[str]
    """In the order of their colours."""
    sections: Sequence[Section]
    plots: Sequence[Plot]
    answers: Sequence[str] = ()
    notes: Sequence[str] = ()
    """What a reader has to know of the traffic."""
    asked: Mapping[str, str] | None = None
    """How the runs were asked for: a name and a value each."""


def html(page: Page, colours: str) -> str:
    """The page; `colours` is a style sheet that defines the dashboard's variables, for light and dark."""
    body = "".join([
        f"<h1>{escape(page.title)}</h1>",
        *(f'<p class="answer">{escape(answer)}</p>' for answer in page.answers),
        '<section class="panel wide">', *map(_table, page.sections), "</section>",
        *(f'<p class="quiet">{escape(note)}</p>' for note in page.notes),
        _legend(page.policies),
        '<section class="plots">', *map(_figure, page.plots), "</section>",
        _meanings(),
        _asked(page.asked or {}),
    ])  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{colours}{style_sheet()}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _table(section: Section) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in ["policy", *headings()])
    rows = "".join(_row(row) for row in section.rows)
    caption = f"<caption>{escape(section.caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(row: Row) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
    return f'<tr><th scope="row">{escape(row.policy)}</th>{cells}</tr>'


def _legend(policies: Sequence[str]) -> str:
    items = "".join(
        f'<li class="line-{style}"><svg viewBox="0 0 28 10" aria-hidden="true"><path class="line" d="M1 5H27"/></svg>'
        f"{escape(policy)}</li>"
        for style, policy in enumerate(policies)
    )
    return f'<ul class="legend" aria-label="policies by colour">{items}</ul>'


def _figure(plot: Plot) -> str:
    caption = f"<figcaption><h2>{escape(plot.title)}</h2><p>{escape(plot.note)}</p></figcaption>"
    return f'<figure class="panel">{caption}{drawn(plot)}</figure>'


def _meanings() -> str:
    terms = "".join(f"<dt>{escape(one.heading)}</dt><dd>{escape(one.meaning)}</dd>" for one in COLUMNS)
    return f'<section class="panel" style="margin-top: 1rem"><h2>The columns</h2><dl>{terms}</dl></section>'


def _asked(asked: Mapping[str, str]) -> str:
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in asked.items())
    return f'<section class="panel"><h2>The runs</h2><dl>{terms}</dl></section>' if terms else ""
