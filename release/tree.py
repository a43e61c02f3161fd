"""The tree that is released: what git has of it, and when it was written."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path


class Refused(Exception):
    """What is there cannot be released; the text says why."""


def git(root: Path, *arguments: str) -> str:
    """Run git in `root` and return what it prints. Raises subprocess.CalledProcessError."""
    outcome = subprocess.run(["git", *arguments], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return outcome.stdout


def changes(root: Path) -> list[str]:
    """What differs from the last commit, untracked files included; as git's short status."""
    return git(root, "status", "--porcelain").splitlines()


def committed_s(root: Path) -> int:
    """When the last commit was made, in Unix seconds: the time that every file of a release gets."""
    return int(git(root, "log", "-1", "--format=%ct"))


def committed_files(root: Path) -> set[str]:
    """The files of the last commit."""
    return set(git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")) - {""}


def export(root: Path, into: Path) -> None:
    """Write the files of the last commit to `into`, which is made: nothing else that lies about gets in."""
    into.mkdir(parents=True)
    with tempfile.TemporaryFile() as packed:
        subprocess.run(["git", "archive", "HEAD"], cwd=root, stdout=packed, check=True)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            archive.extractall(into, filter="data")
