"""A browser for each test, and somebody who looks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.browser.chromium import launched
from tests.browser.viewer import Viewer


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


@pytest.fixture
async def viewer(browser: Browser) -> AsyncIterator[Viewer]:
    """Looks at a desk, in light. Whatever a test does, nothing may be amiss at its end unless it says so itself."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    viewer = await Viewer.of(context)
    yield viewer
    await viewer.check()
    await context.close()
