"""The worked examples of the docs: run, or (`make examples`) written anew with what they print now."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contract.pages import ROOT, Block, all_blocks


def examples_by_page() -> dict[Path, list[Block]]:
    """All pages with examples."""
    found: dict[Path, list[Block]] = {}
    for block in all_blocks():
        if block.language == "pycon":
            found.setdefault(block.page, []).append(block)
    return found


class Runner(doctest.DocTestRunner):
    """Keeps what examples print instead of what they should."""

    def __init__(self) -> None:
        super().__init__(verbose=False)
        self.printed: list[tuple[doctest.Example, str]] = []

    def report_failure(self, out: Callable[[str], object], test: Any, example: doctest.Example, got: str) -> None:
        """Keep it, and say it."""
        self.printed.append((example, got))
        super().report_failure(out, test, example, got)


def run(blocks: list[Block]) -> tuple[list[str], dict[int, tuple[int, str]]]:
    """Run a page's examples, one after the other, with the same names.

    Returns what is to be said of those that print something else, and, by their first line of output (from 0) in the
    page, how many lines that has and what it should be.
    """
    names: dict[str, Any] = {}
    said: list[str] = []
    anew: dict[int, tuple[int, str]] = {}
    for block in blocks:
        where = f"{block.page.relative_to(ROOT)}:{block.line}"
        test = doctest.DocTestParser().get_doctest(block.text, names, where, str(block.page), block.line)
        assert test.examples, where
        runner = Runner()
        runner.run(test, out=said.append, clear_globs=False)
        names = test.globs
        for example, got in runner.printed:
            at = block.line + example.lineno + example.source.count("\n")
            anew[at] = example.want.count("\n"), got
    return said, anew


def rewritten(text: str, anew: dict[int, tuple[int, str]]) -> str:
    """Return a page with what its examples print now."""
    lines = text.splitlines(keepends=True)
    for at in sorted(anew, reverse=True):
        length, got = anew[at]
        lines[at : at + length] = [got]
    return "".join(lines)


def main() -> None:
    """Write every page anew whose examples print something else."""
    for page, blocks in examples_by_page().items():
        said, anew = run(blocks)
        if anew:
            page.write_text(rewritten(page.read_text(), anew))
        print(f"{page.relative_to(ROOT)}: {len(anew)} written anew")
        if len(said) > len(anew):  # some did not even run
            print(*said)


if __name__ == "__main__":
    main()
