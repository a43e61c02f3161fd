"""The live log: what it has, the filter, the pause; and that what clients name is shown as text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.scenes import MODEL, ODD_MODEL, Scene, busy_scene
from tests.browser.shown import amount, seconds
from tests.browser.viewer import Viewer
from tests.rig.stage import Stage

pytestmark = pytest.mark.browser

ROWS = "[data-list='decisions'] tr"


async def shown_requests(viewer: Viewer) -> list[str]:
    return [row["request"] for row in await viewer.rows(ROWS)]


async def has_rows(viewer: Viewer, count: int) -> None:
    """Wait until the log has so many rows."""
    await viewer.page.wait_for_function(
        "([rows, count]) => document.querySelectorAll(rows).length === count", arg=[ROWS, count]
    )


async def decisions(made: Scene) -> list[dict[str, Any]]:
    await made.router.idle()
    rows: list[dict[str, Any]] = await made.get("/api/decisions")
    return rows


async def test_it_has_what_the_api_has_and_what_comes(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    before = await decisions(made)
    await viewer.open(made.url)
    await has_rows(viewer, len(before))
    await made.chat_with_a_miss()
    after = await decisions(made)
    await has_rows(viewer, len(before) + 3)
    rows = await viewer.rows(ROWS)
    assert [row["request"] for row in rows] == [each["request_id"] for each in after]
    names = {replica["id"]: replica["url"].removeprefix("http://") for replica in (await made.quiet())["replicas"]}
    for row, each in zip(rows, after, strict=True):
        decision, usage, turn = each["decision"], each["usage"], each["turn"]
        _, reason, session, number, replica, prompt, matched, cached, lost, *_ = row["cells"]
        assert (reason, session, number) == (decision["reason"], turn["session"], str(turn["number"]))
        assert replica == names[decision["replica"]]
        assert [prompt, matched, cached, lost] == [
            amount(value)
            for value in (
                usage["prompt_tokens"],
                decision["matched_tokens"],
                usage["cached_tokens"],
                turn["lost_tokens"],
            )
        ]
        ttft, total, status, model, _ = row["cells"][10:]
        assert (ttft, total, status, model) == (
            seconds(each["ttft_s"]), seconds(each["total_s"]), str(each["status"]), each["model"]
        )  # fmt: skip


async def test_the_filter(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    rows = await decisions(made)
    await viewer.open(made.url)
    await has_rows(viewer, len(rows))
    page = viewer.page
    reason, why, replica = (page.get_by_label(name, exact=True) for name in ("Reason", "Why lost", "Replica"))
    words = page.get_by_label("Text to look for")

    async def fits(wanted: list[dict[str, Any]]) -> None:
        assert 0 < len(wanted) < len(rows)
        await has_rows(viewer, len(wanted))
        assert await shown_requests(viewer) == [each["request_id"] for each in wanted]
        assert f"{len(wanted)} of the last {len(rows)} decisions" in await viewer.text("#log-told")

    await reason.select_option("warm")
    await fits([each for each in rows if each["decision"]["reason"] == "warm"])
    await reason.select_option("")
    await why.select_option("any")
    await fits([each for each in rows if each["turn"]["lost_tokens"] > 0])
    await why.select_option("system-changed")
    await fits([each for each in rows if each["turn"]["cause"] == "system-changed"])
    await why.select_option("")
    there = made.router.id_of(made.replicas[2])
    await replica.select_option(there)
    await fits([each for each in rows if each["decision"]["replica"] == there])
    await replica.select_option("")
    await words.fill(f"{rows[2]['turn']['session']} WARM")
    session = [each for each in rows if each["turn"]["session"] == rows[2]["turn"]["session"]]
    await fits([each for each in session if each["decision"]["reason"] == "warm"])
    await words.fill("no such thing")
    await has_rows(viewer, 0)


async def test_what_is_typed_and_chosen_survives_new_figures(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await viewer.open(made.url)
    words = viewer.page.get_by_label("Text to look for")
    await words.fill("harb")
    await viewer.page.get_by_label("Replica", exact=True).select_option(made.router.id_of(made.replicas[0]))
    await viewer.page.locator("li[data-cause='system-changed'] summary").click()
    await words.focus()
    await made.chat_with_a_miss()
    await viewer.drawn_since((await made.quiet())["now_s"])
    await viewer.page.keyboard.type("our")
    assert await words.input_value() == "harbour"
    assert await viewer.page.get_by_label("Replica", exact=True).input_value() == made.router.id_of(made.replicas[0])
    assert await viewer.page.locator("li[data-cause='system-changed'] .cure").is_visible()


async def test_the_pause(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    before = await decisions(made)
    await viewer.open(made.url)
    await has_rows(viewer, len(before))
    pause = viewer.page.get_by_role("button", name="Pause")
    await pause.click()
    await made.chat(2)
    await made.quiet()
    await viewer.page.get_by_text("paused, 2 new").wait_for()
    assert await shown_requests(viewer) == [each["request_id"] for each in before]
    await pause.click()
    await has_rows(viewer, len(before) + 2)


async def test_names_of_clients_are_text(stage: Stage, viewer: Viewer) -> None:
    """The viewer's own check at the end finds whatever ran."""
    made = await busy_scene(stage)
    await viewer.open(made.url)
    await viewer.page.locator("#sessions tbody tr").first.wait_for()
    await has_rows(viewer, len(await decisions(made)))
    assert await viewer.page.locator("main img, main script").count() == 0
    for place in ("#shares", "#sessions", "#decisions"):
        assert ODD_MODEL in (await viewer.page.locator(place).text_content() or ""), place
        assert MODEL in (await viewer.page.locator(place).text_content() or ""), place
