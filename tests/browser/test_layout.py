"""The page on a phone, by keyboard, and for those who do not see it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser

from tests.browser.scenes import busy_scene
from tests.browser.viewer import Viewer
from tests.rig.stage import Stage

pytestmark = pytest.mark.browser

BEYOND = """() => [...document.querySelectorAll('body *')]
    .filter((each) => !each.closest('.scroll, dialog:not([open]), .only-read, .patterns'))
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5)
    .map((each) => `${each.tagName} ${each.className}`)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_phone_scrolls_in_one_direction(stage: Stage, browser: Browser, scheme: Any) -> None:
    made = await busy_scene(stage)
    context = await browser.new_context(viewport={"width": 375, "height": 812}, color_scheme=scheme, has_touch=True)
    viewer = await Viewer.of(context)
    await viewer.open(made.url)
    page = viewer.page
    await page.locator("#misses tbody tr").first.wait_for()
    await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    await page.locator(".as-table td").first.wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth") == 375
    assert await page.evaluate(BEYOND) == []
    await page.locator("#misses button[data-session]").first.click()
    await page.locator("dialog [data-turn]").first.wait_for()
    box = await page.locator("dialog").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 375
    await viewer.check()
    await context.close()


async def test_a_desk_shows_all_columns_of_the_decisions_and_titles_on_one_line(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await made.quiet()
    await viewer.open(made.url)
    await viewer.page.locator("#decisions tbody tr").first.wait_for()
    wide = "each => [each.scrollWidth, each.clientWidth]"
    needed, there = await viewer.page.locator("#decisions .scroll").evaluate(wide)
    assert needed <= there
    lines = await viewer.page.locator("li[data-cause='system-changed']").evaluate(
        """each => {
            each.querySelector('.loss-more').textContent = '10 turns, 312 ms of prefill';
            const title = each.querySelector('.loss-title');
            title.textContent = 'New session placed elsewhere';
            return title.offsetHeight / parseFloat(getComputedStyle(title).lineHeight);
        }"""
    )
    assert lines < 1.5
    request = viewer.page.locator("#decisions tbody tr td:last-child .clipped").first
    assert await request.text_content() == await request.get_attribute("title"), "it can be copied whole"


async def test_everything_is_reached_by_keyboard_and_seen_to_be(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await made.quiet()
    await viewer.open(made.url)
    page = viewer.page
    await page.locator("#misses tbody tr").first.wait_for()
    await page.locator("#sessions tbody tr").first.wait_for()
    await page.evaluate(
        """() => {
            const all = document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]');
            const stops = [...all].filter((each) => each.type !== 'radio' || each.checked);
            window.wanted = stops.filter((each) => each.checkVisibility());
            document.body.focus();
        }"""
    )
    wanted = await page.evaluate("window.wanted.length")
    assert wanted > 25
    reached: set[int] = set()
    for _ in range(wanted + 2):
        await page.keyboard.press("Tab")
        at, outline = await page.evaluate(
            """() => {
                const here = document.activeElement;
                const seen = here.type === 'radio' ? here.nextElementSibling : here;
                return [window.wanted.indexOf(here), getComputedStyle(seen).outlineStyle];
            }"""
        )
        if at >= 0:
            reached.add(at)
            assert outline != "none", f"element {at} does not show that it has the focus"
    missing = await page.evaluate(
        "reached => window.wanted.filter((_, at) => !reached.includes(at)).map((each) => each.outerHTML.slice(0, 90))",
        sorted(reached),
    )
    assert missing == []


async def test_the_window_switch_by_keyboard(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await viewer.open(made.url)
    chosen = viewer.page.locator("#windows input:checked")
    assert await chosen.input_value() == "5m", "the smallest that holds a router's first minute"
    await chosen.focus()
    await viewer.page.keyboard.press("ArrowRight")
    await viewer.page.keyboard.press("ArrowRight")
    assert await chosen.input_value() == "24h"
    await viewer.page.reload()
    await viewer.page.wait_for_selector("body.ready")
    assert await chosen.input_value() == "24h"


async def test_the_skip_link(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await viewer.open(made.url)
    await viewer.page.keyboard.press("Tab")
    await viewer.page.keyboard.press("Enter")
    assert await viewer.page.evaluate("document.activeElement.id") == "content"


async def test_landmarks_headings_and_names(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await viewer.open(made.url)
    await viewer.page.locator("#misses tbody tr").first.wait_for()
    page = viewer.page
    for landmark in ("banner", "main", "contentinfo", "search"):
        assert await page.get_by_role(landmark).count() == 1, landmark
    levels = await page.locator("h1, h2, h3").evaluate_all("all => all.map((each) => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    unnamed = await page.evaluate(
        """() => {
            const named = (each) => each.getAttribute('aria-label') ||
                document.getElementById(each.getAttribute('aria-labelledby'));
            const all = document.querySelectorAll('section, table, [role=region], svg[role=img]');
            const without = [...all].filter((each) => (each.tagName === 'TABLE' ? !each.tHead : !named(each)));
            return without.map((each) => each.outerHTML.slice(0, 90));
        }"""
    )
    assert unnamed == []
    assert await page.evaluate("[...document.querySelectorAll('[aria-live]')].map((each) => each.id)") == ["status"]


async def test_nothing_jumps_when_figures_change(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await viewer.open(made.url)
    await viewer.page.locator("#sessions tbody tr").first.wait_for()
    places = """() => [...document.querySelectorAll('section')].map(
        (each) => [each.id, each.getBoundingClientRect().left, each.offsetWidth])"""
    before = await viewer.page.evaluate(places)
    await viewer.page.evaluate(
        """() => {
            window.kept = [...document.querySelectorAll('#replicas tbody tr, #lost li, #shares tr')];
            window.scrollTo(0, 700);
        }"""
    )
    await made.chat_with_a_miss()
    await viewer.drawn_since((await made.quiet())["now_s"])
    assert await viewer.page.evaluate(places) == before
    assert await viewer.page.evaluate("window.kept.every((each) => each.isConnected)"), "rows stay the same elements"
    assert await viewer.page.evaluate("window.scrollY") == 700
