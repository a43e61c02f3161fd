"""The browser of these tests: the system's own Chromium. None is ever downloaded."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def executable() -> str | None:
    """Where it is; None where there is none."""
    chosen = os.environ.get("CHROMIUM")
    return chosen or next((found for name in NAMES if (found := shutil.which(name))), None)


def is_required() -> bool:
    """Whether its absence is a failure, as in CI, and not a reason to skip."""
    return os.environ.get("REQUIRE_BROWSER", "") not in ("", "0")
