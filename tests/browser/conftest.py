"""A browser for each test, and somebody who looks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

from tests.browser.chromium import ARGUMENTS, executable, is_required
from tests.browser.viewer import Viewer


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    found = executable()
    if found is None:
        reason = "no Chromium on PATH or in CHROMIUM"
        pytest.fail(reason) if is_required() else pytest.skip(reason)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        yield browser
        await browser.close()


@pytest.fixture
async def viewer(browser: Browser) -> AsyncIterator[Viewer]:
    """Looks at a desk, in light. Whatever a test does, nothing may be amiss at its end unless it says so itself."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    viewer = await Viewer.of(context)
    yield viewer
    await viewer.check()
    await context.close()
