"""The version, in the two places that name it, and whether its entry in the changelog is complete."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

_ENTRY = re.compile(r"^## \[([^\]]+)\] - (.+)$", re.MULTILINE)
_CLASSIFIER = "Programming Language :: Python :: 3."


def project(tree: Path) -> dict[str, Any]:
    """The project's table in pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    return table


def pythons(tree: Path) -> list[str]:
    """The Pythons that the project says it runs on, such as 3.11, in the order of its classifiers."""
    found = [text for text in project(tree)["classifiers"] if text.startswith(_CLASSIFIER)]
    return [text.rpartition(" ")[2] for text in found]


def fragments(tree: Path) -> list[str]:
    """Names of the changes that no entry of the changelog has yet."""
    return sorted(path.name for path in (tree / "changelog.d").glob("*.md") if path.name != "README.md")


def disagreements(tree: Path) -> list[str]:
    """What would be wrong in any release made of the tree: empty if nothing is."""
    version = project(tree)["version"]
    entry = _ENTRY.search((tree / "CHANGELOG.md").read_text())
    if entry is None:
        return ["CHANGELOG.md has no entry"]
    return [] if entry[1] == version else [f"pyproject.toml has {version}, CHANGELOG.md's newest entry is {entry[1]}"]


def unfinished(tree: Path) -> list[str]:
    """What remains to be written before the tree is a release and no rehearsal: empty if nothing does."""
    entry = _ENTRY.search((tree / "CHANGELOG.md").read_text())
    found = []
    if entry is not None and not _is_date(entry[2]):
        found.append(f"CHANGELOG.md has {entry[2]!r} for the date of {entry[1]}")
    if left := fragments(tree):
        found.append(f"changelog.d has changes that CHANGELOG.md has not: {', '.join(left)}")
    return found


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
