"""The site in a browser, opened from the disk: it asks nobody else for anything, and its search finds."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.browser.chromium import launched

pytestmark = pytest.mark.browser

DESK, PHONE = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


async def test_it_opens_from_the_disk(browser: Browser, site_folder: Path) -> None:
    context = await browser.new_context(viewport=DESK, color_scheme="dark")
    page = await context.new_page()
    elsewhere, wrong = [], []
    page.on("request", lambda request: elsewhere.append(request.url) if request.url.startswith("http") else None)
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    await page.goto((site_folder / "index.html").as_uri())
    await expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    await _search(page, "evicted")
    await page.goto((site_folder / "explanation" / "health.html").as_uri())
    await expect(page.locator(".states svg")).to_be_visible()
    assert (elsewhere, wrong) == ([], [])


async def _search(page: Page, word: str) -> None:
    await page.locator("input.md-search__input").click()
    await page.locator("input.md-search__input").press_sequentially(word)
    first = page.locator(".md-search-result__item a").first
    await expect(first).to_be_visible()
    await expect(first).to_have_attribute("href", re.compile(r"\.html"))


async def test_no_page_is_wider_than_a_phone(browser: Browser, site_folder: Path) -> None:
    context = await browser.new_context(viewport=PHONE, java_script_enabled=False)
    page = await context.new_page()
    for name in ("index", "how-to/compose", "how-to/real-vllm", "reference/settings", "explanation/health"):
        await page.goto((site_folder / f"{name}.html").as_uri())
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
