"""Arranges a frame, so that what matters most is there however small the terminal is."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.app.terminal.figures import lost_of, merged_replicas
from router.app.terminal.headline import (
    around_line,
    cache_line,
    losses,
    reasons_lines,
    saved_line,
    title,
    ttft_line,
    windows_line,
)
from router.app.terminal.tables import (
    PHASES,
    causes_table,
    decisions_table,
    models_table,
    phases_table,
    replicas_table,
    routers_table,
)
from router.app.terminal.view import View

KEYS = "1 2 3 window   q quit"
DECISIONS = 10
"""Shown where the page has no bottom: printed once."""
AIRY_LINES = 26
"""Lines for tables from which on a blank one stands between them."""
BESIDE_COLUMNS = 118
"""Terminal width from which on causes and phases stand side by side."""


class _Room:
    """Lines that a terminal has left. None: as many as are wanted."""

    def __init__(self, lines: int | None) -> None:
        self.lines = lines
        self.above = 1 if lines is not None and lines < AIRY_LINES else 2
        """Lines that a table takes beside its rows: its heading, and a blank one before it."""

    def rows(self, wanted: int, share: float) -> int:
        """Return for how many rows of a table there is room within a share of what is left, and count them out."""
        if self.lines is None or not wanted:
            return wanted
        rows = min(wanted, int(self.lines * share) - self.above)
        if rows < min(wanted, 2):  # one line would only say how many there are
            return 0
        self.lines -= rows + self.above
        return rows


def frame(view: View, width: int, height: int | None = None) -> Group:
    """Return all that is known, or as much of it as `height` lines have room for, with the keys below."""
    lines: list[RenderableType] = [title(view, width), *losses(view.routers)]
    foot = [] if height is None else [Text(KEYS, "dim", end="")]
    if view.overviews:
        lines += _headline(view, width)
        lines += _tables(view, width, _Room(None if height is None else height - len(lines) - len(foot)))
    return Group(*lines, *foot)


def _headline(view: View, width: int) -> list[Text]:
    one = [ttft_line(view), around_line(view)] if len(view.routers) == 1 else []
    return [windows_line(view, width), cache_line(view), saved_line(view), *one, *reasons_lines(view)]


def _tables(view: View, width: int, room: _Room) -> list[RenderableType]:
    """Return the tables in their order on the page. The last one has the room that the others leave."""
    made: list[RenderableType] = []
    beside = width >= BESIDE_COLUMNS and len(view.routers) == 1
    causes = max(1, len(lost_of(view.windows)))
    for draw, wanted, share in (
        (routers_table, _if_several(len(view.routers)), 0.4),
        (models_table, _if_several(len(view.models)), 0.3),
        (_causes_and_phases if beside else causes_table, max(causes, len(PHASES) * beside), 0.4),
        (replicas_table, max(1, len(merged_replicas(view.overviews))), 0.7),
        (decisions_table, DECISIONS if room.lines is None else room.lines, 1.0),
    ):
        rows = room.rows(wanted, share)
        if rows:
            made += [*([Text()] if room.above > 1 else []), draw(view, width, rows)]
    return made


def _causes_and_phases(view: View, width: int, rows: int) -> Table:
    grid = Table.grid(padding=(0, 6, 0, 0))
    grid.add_row(causes_table(view, width, rows), phases_table(view, width, rows))
    return grid


def _if_several(number: int) -> int:
    return number if number > 1 else 0
