"""Somebody who looks at the page, and whatever goes wrong while he does."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Request

DEADLINE_MS = 15_000.0
"""Two cores, other tests beside this one."""

_VIOLATIONS = """
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => window.violations.push(event.violatedDirective));
"""


class Viewer:
    """A page of a browser. At the end `check` tells whether anything was amiss."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.origin = ""
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.expected: list[str] = []
        """Patterns of the errors that a test brings about."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._request)

    @classmethod
    async def of(cls, context: BrowserContext) -> Viewer:
        context.set_default_timeout(DEADLINE_MS)
        await context.add_init_script(_VIOLATIONS)
        return cls(await context.new_page())

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)

    async def open(self, url: str) -> None:
        """Go to the page, and wait for the first figures."""
        await self.visit(url)
        await self.page.wait_for_selector("body.ready")

    async def charted(self) -> None:
        """Wait until the charts over time are drawn."""
        await self.page.wait_for_selector("body[data-charted]")

    async def visit(self, url: str) -> None:
        parts = urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        await self.page.goto(url)

    async def drawn_since(self, now_s: float) -> None:
        """Wait until figures are shown that the router made after a moment, by its own clock."""
        await self.page.wait_for_function("after => Number(document.body.dataset.drawn) > after", arg=now_s)

    async def check(self) -> None:
        """No errors but the expected ones, nothing that the policy forbids, nothing from elsewhere."""
        unexpected = [said for said in self.complaints if not any(re.search(each, said) for each in self.expected)]
        assert unexpected == []
        assert await self.page.evaluate("window.violations") == []
        assert [url for url in self.asked if not url.startswith(f"{self.origin}/")] == []

    async def window(self, name: str) -> None:
        """Switch to a time window."""
        await self.page.locator(f"#windows input[value='{name}']").locator("xpath=..").click()

    async def figures(self, place: Locator | str) -> dict[str, tuple[str, str]]:
        """Field -> exact value and text, of all numbers in a place."""
        found = self.page.locator(place) if isinstance(place, str) else place
        listed: list[list[str]] = await found.locator("data[data-field]").evaluate_all(
            "all => all.map((each) => [each.dataset.field, each.value, each.textContent])"
        )
        return {field: (value, text) for field, value, text in listed}

    async def rows(self, selector: str) -> list[dict[str, Any]]:
        """Each row's data attributes, its text by cell, and its numbers."""
        rows: list[dict[str, Any]] = await self.page.locator(selector).evaluate_all(
            """all => all.map((row) => ({
                ...row.dataset,
                cells: [...row.children].map((cell) => cell.textContent),
                figures: Object.fromEntries([...row.querySelectorAll('data[data-field]')].map(
                    (each) => [each.dataset.field, [each.value, each.textContent]])),
            }))"""
        )
        return rows

    async def text(self, selector: str) -> str:
        return (await self.page.locator(selector).inner_text()).strip()
