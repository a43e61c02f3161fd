"""Every threat of docs/explanation/threats.md has a test, and every test that it and the review name is there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.contract.pages import DOCS, ROOT, code, codes, prose, section, tables

THREATS, REVIEW = DOCS / "explanation" / "threats.md", DOCS / "explanation" / "review.md"

GROUPS = ("From clients", "From web pages", "From engines", "From Redis and the disk", "From inside")

ROWS = [row for group in GROUPS for row in tables(section(THREATS, group))[0]]


def test_all_groups_are_looked_at() -> None:
    assert len(tables(prose(THREATS))) == 1 + len(GROUPS)
    assert len(ROWS) > 40
    assert len({threat for threat, _, _ in ROWS}) == len(ROWS), "a threat stands there twice"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "-"))
def test_a_threat_has_a_test_that_exists(row: tuple[str, ...]) -> None:
    threat, done, named = row
    assert threat
    assert done
    path, _, name = code(named).partition("::")
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions, f"{path} has no {name}"


def test_the_review_names_files_that_exist() -> None:
    (rows,) = tables(prose(REVIEW))
    assert len(rows) > 15
    for kind, _, found, held_by in rows:
        assert re.search(r"\(\d+(, \d+)*\)$", kind), f"{kind}: no number of the CWE"
        assert found
        assert codes(held_by), kind
        for path in codes(held_by):
            assert (ROOT / path).is_file(), f"{kind}: there is no {path}"
