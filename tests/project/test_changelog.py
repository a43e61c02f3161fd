"""News fragments are gathered into the changelog as it is meant to look, and one that means nothing is an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release import version
from tests.contract.pages import ROOT

FOLDER = "changelog.d"
LONGEST_LINES = 4
LINK = re.compile(r"\]\(([^)#\s]+)")

FRAGMENTS = sorted(path for path in (ROOT / FOLDER).iterdir() if path.name != "README.md")


def towncrier(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "towncrier", "build", *arguments]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What towncrier reads, without git and without the fragments that happen to be there."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / FOLDER).mkdir()
    shutil.copy(ROOT / FOLDER / "README.md", tmp_path / FOLDER)
    return tmp_path


def test_what_waits_for_the_next_release_can_be_built() -> None:
    outcome = towncrier(ROOT, "--draft", "--version", "next")
    assert outcome.returncode == 0, outcome.stderr
    for fragment in FRAGMENTS:
        assert fragment.read_text().split("\n")[0] in outcome.stdout, fragment.name


def test_fragments_are_short_and_their_links_start_at_the_root() -> None:
    for fragment in FRAGMENTS:
        text = fragment.read_text().strip()
        assert re.fullmatch(r"\+[a-z0-9-]+(\.\d+)?\.[a-z]+(\.\d+)?\.md", fragment.name), fragment.name
        assert text and not text.startswith(("-", "*", "#")), fragment.name
        assert text.count("\n") < LONGEST_LINES, fragment.name
        for target in LINK.findall(text):
            assert re.match(r"[a-z]+:", target) or (ROOT / target).exists(), f"{fragment.name}: {target}"


@pytest.mark.parametrize("name", ["+topic.md", "topic.md", "+topic.improved.md"])
def test_a_name_that_means_nothing_is_an_error(tree: Path, name: str) -> None:
    (tree / FOLDER / name).write_text("Something.\n")
    outcome = towncrier(tree, "--draft", "--version", "next")
    assert outcome.returncode != 0
    assert name in outcome.stderr


def test_a_release_takes_all_fragments_in(tree: Path) -> None:
    (tree / FOLDER / "+one.added.md").write_text("Sees `x`,\nand more.\n")
    (tree / FOLDER / "+two.fixed.md").write_text("Sees y.\n")
    before = (tree / "CHANGELOG.md").read_text()
    outcome = towncrier(tree, "--yes", "--version", "9.9.9", "--date", "2031-01-02")
    assert outcome.returncode == 0, outcome.stderr
    assert [path.name for path in (tree / FOLDER).iterdir()] == ["README.md"]
    after = (tree / "CHANGELOG.md").read_text()
    head, marker, earlier = before.partition("<!-- towncrier release notes start -->\n")
    assert after.startswith(head + marker)
    assert after.endswith(earlier.lstrip("\n"))
    entry = after.removeprefix(head + marker).removesuffix(earlier.lstrip("\n")).strip()
    assert entry == "## [9.9.9] - 2031-01-02\n\n### Added\n\n- Sees `x`,\n  and more.\n\n### Fixed\n\n- Sees y."


def test_the_newest_entry_is_of_the_version_that_is_built() -> None:
    assert version.disagreements(ROOT) == []
