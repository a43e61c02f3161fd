"""The browser of these tests: the system's own Chromium. None is ever downloaded."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator

from playwright.async_api import Browser, async_playwright

from tests.rig.programs import absent

NAMES = ("chromium", "chromium-browser", "google-chrome")

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def executable() -> str | None:
    """Where it is; None where there is none."""
    chosen = os.environ.get("CHROMIUM")
    return chosen or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A browser; without one the test is skipped, or fails where REQUIRE_BROWSER is set."""
    found = executable() or absent("no Chromium on PATH or in CHROMIUM", "REQUIRE_BROWSER")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield browser
        await browser.close()
