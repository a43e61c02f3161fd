"""Reads the project's Markdown: which pages there are, their tables, their code blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_HEADING = re.compile(r"^(#+) +(.+?) *$")
_FENCE = re.compile(r"^(`{3,})(.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `info` is what follows the fence: the language, and words of ours behind it."""

    page: Path
    line: int
    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]

    @property
    def mark(self) -> str:
        return self.info.partition(" ")[2]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All Markdown files of the project."""
    found = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    found += [*(ROOT / "benchmarks").glob("*.md"), *(ROOT / "changelog.d").glob("README.md")]
    assert len(found) > 20
    return sorted(found)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    opened: tuple[int, str, str] | None = None
    text: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, text = (number, fence[1], fence[2].strip()), []
        elif opened is not None and line.rstrip() == opened[1]:
            found.append(Block(page, opened[0], opened[2], "\n".join(text) + "\n"))
            opened = None
        else:
            text.append(line)
    assert opened is None, f"{page}: the block at line {opened and opened[0]} does not end"
    return found


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def prose(page: Path) -> str:
    """A page without its fenced blocks; line numbers stay."""
    lines = page.read_text().splitlines()
    for block in blocks(page):
        count = block.text.count("\n") + 1
        lines[block.line - 1 : block.line + count] = [""] * (count + 1)
    return "\n".join(lines)


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next one of any level."""
    found: list[str] = []
    inside = False
    for line in prose(page).splitlines():
        title = _HEADING.match(line)
        if title:
            inside = title[2] == heading
        elif inside:
            found.append(line)
    assert found, f"{page.name} has no section {heading!r}"
    return "\n".join(found)


def tables(text: str) -> list[list[tuple[str, ...]]]:
    """The tables of a text, each as its rows without head and rule; cells without their surrounding spaces."""
    found: list[list[tuple[str, ...]]] = []
    rows: list[tuple[str, ...]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(tuple(cell.strip() for cell in line.strip().strip("|").split("|")))
        elif rows:
            found.append(rows[2:])
            rows = []
    return found


def table(page: Path, heading: str, number: int = 0) -> list[tuple[str, ...]]:
    """The rows of one table below a heading."""
    return tables(section(page, heading))[number]


def code(cell: str) -> str:
    """A cell that is one piece of code, without its backticks; an empty cell is empty."""
    match = re.fullmatch(r"`([^`]+)`", cell)
    assert match or not cell, f"not a piece of code: {cell}"
    return match[1] if match else ""


def codes(cell: str) -> list[str]:
    """All pieces of code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = [match[2] for line in prose(page).splitlines() if (match := _HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles}
