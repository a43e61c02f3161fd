"""Where the Pythons of a release are on this machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PYENV = Path.home() / ".pyenv" / "versions"


def find(version: str) -> Path | None:
    """An interpreter of a version such as 3.12: the one that runs, on PATH, or of pyenv; None if there is none."""
    return next((path for path in _candidates(version) if _is(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    if named := shutil.which(f"python{version}"):
        yield Path(named)
    yield from sorted(PYENV.glob(f"{version}.*/bin/python"), key=_patch, reverse=True)


def _patch(path: Path) -> int:
    patch = path.parents[1].name.rpartition(".")[2]
    return int(patch) if patch.isdecimal() else -1


def _is(path: Path, version: str) -> bool:
    """Ask it: pyenv's shims are on PATH for versions that they then refuse to run."""
    asked = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    outcome = subprocess.run([path, "-c", asked], capture_output=True, text=True, check=False)
    return outcome.stdout.strip() == version
