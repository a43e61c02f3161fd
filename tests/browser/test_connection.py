"""The token, and a router that goes away and comes back."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.viewer import Viewer
from tests.rig.client import chat
from tests.rig.served import serving
from tests.rig.stage import Stage
from tests.rig.talks import text

pytestmark = pytest.mark.browser

TOKEN = "a token of some length"


async def test_the_token_is_asked_for_and_kept_in_the_tab(stage: Stage, viewer: Viewer) -> None:
    router = await stage.router(await stage.replica(), admin_token=TOKEN)
    url = str((await router.admin()).base_url)
    viewer.expected.append("401")
    await viewer.visit(url)
    page = viewer.page
    field = page.get_by_label("This admin port wants its token")
    await expect(field).to_be_focused()
    assert await viewer.text("#status") == "Waiting for the token"
    await field.fill("wrong")
    await page.keyboard.press("Enter")
    await page.get_by_text("That token was refused.").wait_for()
    await field.fill(TOKEN)
    await page.get_by_role("button", name="Connect").click()
    await page.wait_for_selector("body.ready")
    assert not await field.is_visible()
    assert await page.evaluate("Object.values(sessionStorage)") == [TOKEN]
    assert await page.evaluate("localStorage.length") == 0
    assert await page.evaluate("document.cookie") == ""
    await page.reload()
    await page.wait_for_selector("body.ready")
    assert not await field.is_visible()
    assert all(TOKEN not in asked for asked in viewer.asked)


async def test_a_router_that_restarts(stage: Stage, viewer: Viewer) -> None:
    replica = await stage.replica()
    viewer.expected.append("ERR_")
    flags = ("--replica", replica.url, "--no-log-requests")
    async with serving(*flags) as first:
        await stage.ask(first, chat(text(1)))
        port = first.admin_port
        await viewer.open(f"http://127.0.0.1:{port}/")
        await expect(viewer.page.locator("#status-text")).to_have_text("Live")
        await expect(viewer.page.locator("[data-list='decisions'] tr")).to_have_count(1)
        await viewer.page.get_by_label("Text to look for").fill("chat")
    lost = viewer.page.locator("#status-text")
    await expect(lost).to_contain_text("Not connected since")
    assert (await viewer.figures("#cache"))["requests"] == ("1", "1"), "what was known stays"
    async with serving(*flags, "--admin-port", str(port)) as second:
        await expect(lost).to_have_text("Live", timeout=30_000)
        await expect(viewer.page.locator("[data-list='decisions'] tr")).to_have_count(0)
        await expect(viewer.page.locator("#cache data[data-field='requests']")).to_have_text("0")
        await stage.ask(second, chat(text(2)))
        await expect(viewer.page.locator("[data-list='decisions'] tr")).to_have_count(1)
        assert await viewer.page.get_by_label("Text to look for").input_value() == "chat"
