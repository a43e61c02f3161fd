"""The Makefile's help is whole, and no file or folder that happens to have a target's name keeps it from being made."""

from __future__ import annotations

import re
import subprocess

from tests.contract.pages import ROOT

TEXT = (ROOT / "Makefile").read_text()
GROUPS = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
DESCRIBED = dict(re.findall(r"^([a-z-]+):.*? ## (.+)$", TEXT, re.MULTILINE))
TARGETS = re.findall(r"^([a-z-]+):", TEXT, re.MULTILINE)
PARTS = re.compile(r"check-[a-z-]+|redis-server|help")
"""Targets that are parts of others."""


def test_the_help_lists_all_groups_and_all_targets() -> None:
    shown = subprocess.run(
        ["make", "--silent"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    ).stdout
    assert [line for line in shown.splitlines() if line and not line.startswith(" ")] == GROUPS
    assert re.findall(r"^  make ([a-z-]+) +(.+)$", shown, re.MULTILINE) == list(DESCRIBED.items())
    assert max(map(len, shown.splitlines())) <= 120


def test_every_target_says_what_it_does() -> None:
    assert [name for name in TARGETS if name not in DESCRIBED and not PARTS.fullmatch(name)] == []


def test_targets_are_no_files() -> None:
    """As `release` and `docs` are, which are folders too."""
    asked = subprocess.run(["make", "-pn", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    phony = re.search(r"^\.PHONY: (.*)$", asked.stdout, re.MULTILINE)
    assert phony is not None
    assert sorted(phony[1].split()) == sorted(TARGETS)
