"""The hooks that git runs are the checks of `make lint`, and these checks find what they are for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.pages import ROOT

MAKEFILE = ROOT / "Makefile"
CONFIG = ROOT / ".pre-commit-config.yaml"
BIN = f"BIN={Path(sys.executable).parent}"


def checks() -> list[str]:
    (line,) = re.findall(r"^CHECKS := (.*)$", MAKEFILE.read_text(), re.MULTILINE)
    return str(line).split()


def hooks() -> list[dict[str, Any]]:
    config = yaml.safe_load(CONFIG.read_text())
    assert [place["repo"] for place in config["repos"]] == ["local"], "a hook from elsewhere would be fetched"
    found: list[dict[str, Any]] = config["repos"][0]["hooks"]
    return found


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50, check=False)


def test_pre_commit_takes_the_config() -> None:
    outcome = run(ROOT, sys.executable, "-m", "pre_commit", "validate-config", str(CONFIG))
    assert (outcome.returncode, outcome.stdout + outcome.stderr) == (0, "")


def test_hooks_and_lint_are_the_same_commands() -> None:
    assert sorted(hook["id"] for hook in hooks()) == sorted(checks())
    for hook in hooks():
        assert hook["entry"] == f"make --silent check-{hook['id']}"
        assert hook["pass_filenames"] is False, "a target takes no files"


def test_every_check_is_a_target_with_a_recipe() -> None:
    text = MAKEFILE.read_text()
    for name in checks():
        assert re.search(rf"^check-{name}:.*\n\t", text, re.MULTILINE), name
    targets = re.findall(r"^check-([a-z-]+):", text, re.MULTILINE)
    assert sorted(targets) == sorted(checks()), "a check that neither lint nor a hook runs"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with this Makefile, which takes the programs from where these tests run."""
    if shutil.which("git") is None or shutil.which("make") is None:
        pytest.skip("git and make are needed")
    shutil.copy(MAKEFILE, tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".gitignore").write_text(".venv/\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    run(tmp_path, "git", "init", "--quiet")
    return tmp_path


def make(folder: Path, target: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "make", "--silent", target, BIN, "PIP=false")


def test_a_large_file_is_found_before_it_is_committed(repository: Path) -> None:
    (repository / "small").write_bytes(bytes(512 << 10))
    assert make(repository, "check-large-files").returncode == 0
    (repository / "a large one").write_bytes(bytes((512 << 10) + 1))
    outcome = make(repository, "check-large-files")
    assert outcome.returncode != 0
    assert "a large one" in outcome.stderr


def test_a_shell_script_is_found_by_its_first_line(repository: Path) -> None:
    assert make(repository, "check-shellcheck").returncode == 0, "no script is no error"
    (repository / "a script").write_text("#!/bin/sh\necho $1\n")
    outcome = make(repository, "check-shellcheck")
    assert outcome.returncode != 0
    assert "SC2086" in outcome.stdout


def test_a_fragment_with_a_wrong_name_is_found(repository: Path) -> None:
    shutil.copy(ROOT / "CHANGELOG.md", repository)
    (repository / "changelog.d").mkdir()
    (repository / "changelog.d" / "+x.added.md").write_text("Something.\n")
    outcome = make(repository, "check-changelog")
    assert (outcome.returncode, outcome.stdout + outcome.stderr) == (0, "")
    (repository / "changelog.d" / "+x.improved.md").write_text("Something.\n")
    outcome = make(repository, "check-changelog")
    assert outcome.returncode != 0
    assert "+x.improved.md" in outcome.stderr
