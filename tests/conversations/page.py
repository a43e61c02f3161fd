"""The tables of docs/reference/http.md: what is sent, and what comes of it here and behind nginx.

`python -m tests.conversations.page` writes them anew with what this router and the nginx on this machine answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from pathlib import Path

import uvloop

from tests.contract.pages import DOCS, table
from tests.conversations import nginx
from tests.conversations.corpus import CORPUS, Entry
from tests.conversations.judging import Outcome, Witness, judge
from tests.rig.stage import Stage

PAGE = DOCS / "reference" / "http.md"
_HEAD = "| what is odd | RFC | Warmroute | nginx | why not as nginx |\n| --- | --- | --- | --- | --- |\n"


def row(name: str, entry: Entry, ours: Outcome, theirs: Outcome) -> str:
    """One row of a table."""
    why = f" {entry.why}" if ours != theirs else ""
    return f"| {name} | {entry.section} | {ours} | {theirs} |{why} |\n"


def documented(heading: str) -> dict[str, tuple[str, str, str, str]]:
    """The rows of a table by their name: section, ours, nginx's, why."""
    return {name: (section, ours, theirs, why) for name, section, ours, theirs, why in table(PAGE, heading)}


def nginx_version() -> str:
    """The version whose answers the page shows."""
    found = re.search(r"nginx (\d+\.\d+)", PAGE.read_text())
    assert found
    return found[1]


def with_table(text: str, heading: str, rows: str) -> str:
    """The page with another table below a heading."""
    before, found, behind = text.partition(f"\n## {heading}\n")
    assert found, heading
    start = behind.index("| what is odd |")
    end = behind.find("\n\n", start)
    return before + found + behind[:start] + _HEAD + rows.rstrip("\n") + (behind[end:] if end >= 0 else "\n")


async def _write() -> None:
    ours, theirs = Witness(), Witness()
    async with contextlib.AsyncExitStack() as stack:
        stage = Stage(stack)
        router = await stage.router(await stage.upstream(ours.script))
        behind = await stage.upstream(theirs.script)
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(nginx.serving(home, behind.port))
        text = PAGE.read_text()
        for heading, entries in CORPUS.items():
            rows = ""
            for name, entry in entries.items():
                here, _ = await judge(router, ours, entry.data)
                there, _ = await judge(server, theirs, entry.data)
                rows += row(name, entry, here, there)
            text = with_table(text, heading, rows)
        PAGE.write_text(text)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_write())
