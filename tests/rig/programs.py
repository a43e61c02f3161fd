"""Programs that no package of the index brings: tests are skipped without them, or fail where they are asked for."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest


def absent(reason: str, required: str) -> NoReturn:
    """Skip the test, or fail it where the variable `required` is set, as in CI."""
    if os.environ.get(required, "") not in ("", "0"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str, source: str, required: str) -> str:
    """The path of a program, beside this Python or on PATH. `source`: where it comes from."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    return found or absent(f"{name} is not installed ({source})", required)
