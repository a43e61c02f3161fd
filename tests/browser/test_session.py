"""A session's dialog: its turns, where each went, and why one missed."""

from __future__ import annotations

import pytest

from tests.browser.scenes import busy_scene
from tests.browser.shown import amount, seconds
from tests.browser.viewer import Viewer
from tests.rig.stage import Stage

pytestmark = pytest.mark.browser


async def test_its_turns_are_those_of_the_api(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await made.quiet()
    (miss, *_) = await made.get("/api/misses")
    session = await made.get(f"/api/sessions/{miss['session']}")
    assert [turn["number"] for turn in session["turns"]] == [1, 2, 3]
    await viewer.open(made.url)
    button = viewer.page.locator(f"#misses button[data-session='{miss['session']}']").first
    await button.click()
    dialog = viewer.page.get_by_role("dialog", name=f"Session {miss['session']}")
    await dialog.locator("[data-turn]").first.wait_for()
    names = {replica["id"]: replica["url"].removeprefix("http://") for replica in (await made.quiet())["replicas"]}
    rows = await viewer.rows("dialog [data-turn]")
    for row, turn in zip(rows, session["turns"], strict=True):
        number, _, replica, reason, prompt, _, cached, lost, new, idle, ttft, status = row["cells"]
        assert (number, replica, reason) == (str(turn["number"]), names[turn["replica"]], turn["reason"])
        assert [prompt, cached, lost] == [
            amount(turn[name]) for name in ("prompt_tokens", "cached_tokens", "lost_tokens")
        ]
        assert new == amount(max(0, turn["prompt_tokens"] - turn["history_tokens"]))
        assert [idle, ttft, status] == [seconds(turn["idle_s"]), seconds(turn["ttft_s"]), "200"]
    why = dialog.locator(".why").last
    assert "System prompt changed" in await why.inner_text()
    await why.locator("summary").click()
    assert "Keep it word for word" in await why.inner_text()
    scores = session["turns"][-1]["scores"]
    assert len(scores) > 1
    assert await why.locator(".scores tbody tr").count() == len(scores)
    terms = ("total_s", "queue_s", "own_s", "balance_s", "evicted_s", "streams_s")
    for line, score in zip(await why.locator(".scores tbody tr").all(), scores, strict=True):
        assert (await line.locator("td").all_inner_texts())[: len(terms)] == [seconds(score[term]) for term in terms]
    await viewer.page.keyboard.press("Escape")
    assert not await dialog.is_visible()
    assert await button.evaluate("each => each === document.activeElement"), "the focus is back where it was"


async def test_it_stays_open_and_follows_the_session(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    talk = await made.chat(2)
    await made.quiet()
    (newest, *_) = await made.get("/api/sessions")
    await viewer.open(made.url)
    await viewer.page.locator(f"#sessions button[data-session='{newest['session']}']").click()
    turns = viewer.page.locator("dialog [data-turn]")
    await turns.nth(1).wait_for()
    await made.say(talk)
    await turns.nth(2).wait_for()
    assert await turns.count() == 3
    await viewer.page.get_by_role("button", name="Close").click()
    assert not await viewer.page.get_by_role("dialog").is_visible()


async def test_one_that_is_not_kept_any_more(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await made.quiet()
    await viewer.open(made.url)
    viewer.expected.append("404")
    button = viewer.page.locator("#sessions button[data-session]").first
    await button.evaluate("each => { each.dataset.session = 's-gone'; }")
    await button.click()
    await viewer.page.get_by_role("alert").get_by_text("there is no session").wait_for()
    assert await viewer.page.locator("dialog [data-turn]").count() == 0
