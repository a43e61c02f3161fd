"""What a terminal shows of a replay: a bar while it runs, then the table and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from router.app.replay.jobs import Progress as Told
from router.replay.report.page import Section
from router.replay.report.rows import headings

WIDE = 170
"""Columns where there is no terminal: the whole table, on one line a policy."""


@contextmanager
def progress_bar(console: Console, runs: int) -> Iterator[Told]:
    """A bar on `console`, if that is a terminal; gives what to tell it."""
    if not console.is_terminal:
        yield lambda share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"{runs} run{'s' if runs > 1 else ''}", total=1.0)
        yield lambda share: bar.update(task, completed=share)


def output() -> Console:
    """Standard output, as wide as the terminal or as the table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDE, highlight=False)


def print_sections(console: Console, sections: Sequence[Section]) -> None:
    """One table each."""
    for section in sections:
        table = Table(title=section.caption, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("policy", no_wrap=True)
        for heading in headings():
            table.add_column(heading, justify="right")
        for row in section.rows:
            table.add_row(row.policy, *row.cells)
        console.print(table)
