"""No setting is there that nothing reads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import router
from router.app.settings.model import Settings

PACKAGE = Path(router.__file__).parent
HOLDERS = {"settings", "_settings", "now", "before"}
"""What an object of settings is called where it is read."""


def reads(source: str) -> set[str]:
    """The fields that are taken of settings."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            holder = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if holder in HOLDERS:
                found.add(node.attr)
    return found


READ = {
    name
    for file in PACKAGE.rglob("*.py")
    if "settings" not in file.relative_to(PACKAGE).parts
    for name in reads(file.read_text())
}


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_it_is_read(name: str) -> None:
    assert name in READ


def test_one_that_is_not_would_be_found() -> None:
    assert "no_such_setting" not in READ
    assert reads("house.settings.drain_s; other.grace_s") == {"drain_s"}
