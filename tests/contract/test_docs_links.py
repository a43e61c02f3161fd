"""Links and file references in all Markdown lead somewhere, and nothing leads to somebody's own machine."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import router
from tests.contract.pages import DOCS, ROOT, anchors, pages, prose

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MACHINE_PATH = re.compile(r"(?<![\w.])(?:/home/|/root\b|/Users/|/work/|/tmp/|/opt/|[A-Z]:\\)")

each_page = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))


def place_of(name: str) -> Path:
    """Where a file of the project is: those of the package where it was imported from."""
    return (Path(router.__file__).parents[1] if name.startswith("router/") else ROOT) / name


@cache
def names_in(file: Path) -> set[str]:
    """Functions, classes and constants of a Python file, methods and fields included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@each_page
def test_relative_links_exist(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert file.is_relative_to(ROOT), f"{page.name}: {target} leads out of the project"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target} has no such heading"


@each_page
def test_files_and_functions_that_are_named_exist(page: Path) -> None:
    for line in prose(page).splitlines():
        file: Path | None = None
        for code in re.findall(r"`([^`]+)`", line):
            named = re.fullmatch(r"((?:router|tests|docs|benchmarks|release)/[\w./-]*)(?::(\w+))?", code)
            if named:
                file, name = place_of(named[1]), named[2]
                assert file.exists(), f"{page.name}: {code}"
            else:
                # In the table of steps, `file:one`, `two` names two functions of one file.
                follows = page.stem == "architecture" and re.fullmatch(r"_?[a-z]+(_[a-z]+)+", code)
                name = code if follows else None
            if file and name and file.suffix == ".py":
                assert name in names_in(file), f"{page.name}: {code} is not in {file.name}"


@each_page
def test_no_path_of_somebodys_machine(page: Path) -> None:
    found = MACHINE_PATH.search(page.read_text())
    assert found is None, f"{page.name}: {found and found[0]}"


def test_every_page_is_in_the_index() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall(prose(index))}
    missing = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in linked | {index}]
    assert missing == []


def test_every_picture_is_shown_somewhere() -> None:
    text = "".join(page.read_text() for page in pages())
    for picture in (DOCS / "images").iterdir():
        assert picture.name in text, picture


def test_every_file_of_the_house_is_in_its_tables() -> None:
    text = prose(DOCS / "architecture.md")
    for layer in ("core", "proxy"):
        names = {file.name for file in place_of(f"router/{layer}").glob("*.py")}
        assert "__init__.py" in names
        for name in names - {"__init__.py"}:
            assert f"| `router/{layer}/{name}` |" in text, name
