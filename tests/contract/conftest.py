"""The documentation's site, built once for each process that tests run in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.pages import ROOT
from tests.contract.site import Shown, read


@pytest.fixture(scope="session")
def site_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as `make docs` does; a warning is a failure."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "REPOSITORY_URL": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr  # --quiet would keep it from counting warnings
    return folder


@pytest.fixture(scope="session")
def site(site_folder: Path) -> dict[Path, Shown]:
    """File -> what is in it, for all of the site's pages but the one for addresses that lead nowhere."""
    return {file: read(file) for file in sorted(site_folder.rglob("*.html")) if file.name != "404.html"}
