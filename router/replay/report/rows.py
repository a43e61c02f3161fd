"""The table of a replay: the same columns in a terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from router.replay.report.figures import Figures

NOTHING = "-"
"""Shown for a figure that there is not."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: where it stands in `Figures`, its heading, and how it is written."""

    field: str
    heading: str
    meaning: str
    factor: float = 1.0
    decimals: int = 0


COLUMNS = (
    Column("requests", "requests", "counted requests, refused ones included"),
    Column("hit_ratio", "hits %", "prompt tokens that were found cached", 100, 1),
    Column("pooled_share_ratio", "of pooled %", "hits, of those of one LRU cache as large as all together", 100, 1),
    Column("ceiling_share_ratio", "of ceiling %", "hits, of those of a cache that never evicts", 100, 1),
    Column("ttft_p50_s", "TTFT p50 s", "time to first token, median", 1, 2),
    Column("ttft_p95_s", "TTFT p95 s", "time to first token, 95th percentile", 1, 2),
    Column("ttft_p99_s", "TTFT p99 s", "time to first token, 99th percentile", 1, 2),
    Column("e2e_p50_s", "e2e p50 s", "time to the last token, median", 1, 1),
    Column("e2e_p95_s", "e2e p95 s", "time to the last token, 95th percentile", 1, 1),
    Column("imbalance_ratio", "busiest / mean", "uncached tokens of the busiest replica over the mean", 1, 2),
    Column("refused_ratio", "refused %", "requests that were sent away", 100, 1),
)
AGAINST_FIRST = "p95 / first policy's"
"""Heading of the last column: TTFT p95 over that of the first policy."""


class Row(NamedTuple):
    """A policy's name and its cells, as text."""

    policy: str
    cells: list[str]


def headings() -> list[str]:
    """The headings of a row's cells."""
    return [*(column.heading for column in COLUMNS), AGAINST_FIRST]


def rows(figures: Sequence[Figures]) -> list[Row]:
    """One row for each run, in order; the first is what the others' p95 is compared with."""
    return [Row(one.policy, [*_cells(one), _against(one, figures[0])]) for one in figures]


def _cells(figures: Figures) -> list[str]:
    return [cell(getattr(figures, column.field), column) for column in COLUMNS]


def cell(number: float, column: Column) -> str:
    """A figure as its column writes it."""
    return NOTHING if isnan(number) else f"{number * column.factor:,.{column.decimals}f}"


def _against(own: Figures, first: Figures) -> str:
    ratio = own.ttft_p95_s / first.ttft_p95_s if first.ttft_p95_s else float("nan")
    return NOTHING if isnan(ratio) else f"{ratio:.2f}"
