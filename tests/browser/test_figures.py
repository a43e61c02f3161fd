"""What the page shows is what the API says, exactly in its attributes and rounded in its text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.scenes import MODEL, ODD_MODEL, busy_scene
from tests.browser.shown import TOTALS, UNKNOWN, amount, count, is_shown, percent, seconds
from tests.browser.viewer import Viewer
from tests.rig.client import chat
from tests.rig.stage import Stage
from tests.rig.talks import text

pytestmark = pytest.mark.browser

TEXT = text(1)
WINDOWS = ("5m", "1h", "24h")


def assert_totals(figures: dict[str, list[str]], totals: dict[str, Any], whose: str) -> None:
    for field, shown in TOTALS.items():
        assert is_shown(figures[field], totals[field], shown), (whose, field, figures[field], totals[field])


async def test_all_totals_of_fleet_models_and_replicas_in_every_window(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await viewer.open(made.url)
    await made.chat_with_a_miss()
    overview = await made.quiet()
    await viewer.drawn_since(overview["now_s"])
    assert overview["windows"]["5m"]["requests"] == 17
    for window in WINDOWS:
        await viewer.window(window)
        await viewer.drawn_since((await made.get("/api/overview"))["now_s"])
        rows = {(row["kind"], row["id"]): row["figures"] for row in await viewer.rows("#shares tbody tr")}
        assert set(rows) == {
            ("fleet", ""),
            *(("model", name) for name in (MODEL, ODD_MODEL)),
            *(("replica", made.router.id_of(replica)) for replica in made.replicas),
        }
        assert_totals(rows["fleet", ""], overview["windows"][window], f"fleet, {window}")
        for name, windows in overview["models"].items():
            assert_totals(rows["model", name], windows[window], f"{name}, {window}")
        for replica in overview["replicas"]:
            assert_totals(rows["replica", replica["id"]], replica["windows"][window], f"{replica['id']}, {window}")


async def test_the_first_answers(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    overview = await made.quiet()
    await viewer.open(made.url)
    all_of_it = overview["windows"]["1h"]
    shown = await viewer.figures("#cache")
    assert all_of_it["hit_ratio"] > 0.3
    for field in ("hit_ratio", "predicted_ratio", "engine_cached_tokens", "reported_prompt_tokens", "prompt_tokens"):
        assert is_shown(shown[field], all_of_it[field], TOTALS[field]), field
    saved = await viewer.figures("#saved")
    assert is_shown(saved["saved_prefill_s"], all_of_it["saved_prefill_s"], seconds)
    assert is_shown(saved["saved_ttft_s"], all_of_it["saved_ttft_s"], seconds)
    for kind in ("warm", "cold"):
        assert all_of_it["ttft"][kind]["count"] > 0
        assert is_shown(saved[f"ttft_{kind}_p50_s"], all_of_it["ttft"][kind]["p50_s"], seconds)


async def test_what_is_lost_in_the_order_of_its_tokens(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    overview = await made.quiet()
    await viewer.open(made.url)
    causes = [loss for loss in overview["windows"]["1h"]["causes"] if loss["tokens"] > 0]
    assert "system-changed" in [loss["cause"] for loss in causes]
    rows = await viewer.rows("[data-list='causes'] > li")
    assert [row["cause"] for row in rows] == [loss["cause"] for loss in causes]
    for row, loss in zip(rows, causes, strict=True):
        assert is_shown(row["figures"]["tokens"], loss["tokens"], amount)
        assert is_shown(row["figures"]["turns"], loss["turns"], count)
        assert is_shown(row["figures"]["prefill_s"], loss["prefill_s"], seconds)
    changed = viewer.page.locator("li[data-cause='system-changed']")
    assert rows[[row["cause"] for row in rows].index("system-changed")]["figures"]["turns"] == ["1", "1"]
    assert "1 turn, " in await changed.inner_text()
    assert "differs from that of the turn before" in await changed.inner_text()
    await changed.locator("summary").click()
    assert "Keep it word for word" in await changed.inner_text()
    lost = (await viewer.figures("#lost > p"))["lost_tokens"]
    assert is_shown(lost, overview["windows"]["1h"]["lost_tokens"], amount)


async def test_the_replicas(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await viewer.open(made.url)
    overview = await made.quiet()
    await viewer.drawn_since(overview["now_s"])
    rows = await viewer.rows("[data-list='replicas'] tr")
    assert [row["id"] for row in rows] == [replica["id"] for replica in overview["replicas"]]
    for row, replica in zip(rows, overview["replicas"], strict=True):
        figures = row["figures"]
        error = replica["mirror"]["error_ratio"]
        assert error is not None
        assert is_shown(figures["hit_ratio"], replica["windows"]["1h"]["hit_ratio"], percent)
        assert is_shown(figures["ledger.uncached_tokens"], 0, amount)
        assert is_shown(figures["ledger.streams"], 0, count)
        assert is_shown(figures["mirror.fill_ratio"], replica["mirror"]["fill_ratio"], percent)
        assert float(figures["mirror.accuracy"][0]) == pytest.approx(1 - error)
        assert is_shown(figures["eviction_age_s"], None, seconds), "nothing need be evicted"
        assert row["cells"][1] == "ready"


async def test_where_the_time_goes(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    overview = await made.quiet()
    await viewer.open(made.url)
    phases = overview["windows"]["1h"]["phases"]
    rows = {row["phase"]: row["figures"] for row in await viewer.rows("#phases tbody tr")}
    assert list(rows) == list(phases)
    for phase, quantiles in phases.items():
        assert is_shown(rows[phase]["count"], quantiles["count"], count), phase
        assert is_shown(rows[phase]["p50_s"], quantiles["p50_s"], seconds), phase
        assert is_shown(rows[phase]["p95_s"], quantiles["p95_s"], seconds), phase


async def table(viewer: Viewer, title: str) -> list[list[str]]:
    """The rows of a chart's table, its head first."""
    chart = viewer.page.locator("figure.chart").filter(has=viewer.page.get_by_role("heading", name=title, exact=True))
    await chart.locator("summary").click()
    await chart.locator("tr").first.wait_for(state="attached")  # it is filled when it is opened
    rows: list[list[str]] = await chart.locator("tr").evaluate_all(
        "all => all.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return rows


async def test_the_charts_tables(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    overview = await made.quiet()
    history = await made.get("/api/history?window=1h")
    await viewer.open(made.url)
    await viewer.charted()
    head, *rows = await table(viewer, "Decisions by reason")
    sums = {name: sum(int(row[at].replace(",", "")) for row in rows) for at, name in enumerate(head) if at}
    assert sums == {
        reason: total for reason, values in history["reasons"].items() if (total := sum(map(int, filter(None, values))))
    }
    _, *rows = await table(viewer, "After how long sessions come back")
    returns = overview["windows"]["1h"]["returns"]
    assert [row[1:] for row in rows] == [
        [count(in_time), count(late)] for in_time, late in zip(returns["in_time"], returns["too_late"], strict=True)
    ]
    late, all_of_them = sum(returns["too_late"]), sum(returns["too_late"] + returns["in_time"])
    assert await viewer.text("#returns-sentence") == f"{late} of {all_of_them} returns came too late."
    _, *rows = await table(viewer, "Time to first token by prompt length")
    for row, length in zip(rows, overview["windows"]["1h"]["ttft_by_length"], strict=True):
        expected = [
            [count(each["count"]), seconds(each["p50_s"]), seconds(each["p95_s"])]
            for each in (length["warm"], length["cold"])
        ]
        assert row[1:] == [*expected[0], *expected[1]]


async def test_each_chart_says_in_words_what_it_shows(stage: Stage, viewer: Viewer) -> None:
    made = await busy_scene(stage)
    await made.quiet()
    await viewer.open(made.url)
    await viewer.charted()
    charts = await viewer.page.get_by_role("img").all()
    named = [await chart.get_attribute("aria-label") or "" for chart in charts]
    assert len(named) == 6
    for name in named:
        assert len(name.split()) > 6, name


async def test_what_is_not_known_is_a_dash_and_not_zero(stage: Stage, viewer: Viewer) -> None:
    admin = await (await stage.router(await stage.replica())).admin()
    await viewer.open(str(admin.base_url))
    figures: dict[str, tuple[str, str]] = {}
    for place in ("#cache", "#saved", "[data-list='replicas']"):
        figures |= await viewer.figures(place)
    for field in (
        "hit_ratio",
        "predicted_ratio",
        "saved_ttft_s",
        "ttft_warm_p50_s",
        "mirror.accuracy",
        "engine.waiting",
    ):
        assert figures[field] == ("", UNKNOWN), field
    assert figures["requests"] == ("0", "0")


async def test_where_no_answer_says_what_was_cached_the_engines_counters_do(stage: Stage, viewer: Viewer) -> None:
    replica = await stage.replica(prompt_tokens_details=False)
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    books = router.books(replica)
    await router.until(lambda: books.report.prefix_queries_tokens is not None)
    admin = await router.admin()
    await admin.get("/api/overview")  # from here on the counters are followed
    for _ in range(2):
        await stage.ask(router, chat(TEXT))
    await router.until(lambda: (books.report.prefix_hits_tokens or 0) > 0)
    await router.idle()
    fleet = (await admin.get("/api/overview")).json()["windows"]["1h"]
    assert fleet["hit_ratio"] is None
    assert 0 < fleet["counter_ratio"] < 1
    assert fleet["counter_hits_tokens"] == books.report.prefix_hits_tokens
    await viewer.open(str(admin.base_url))
    figures = await viewer.figures("#cache")
    assert is_shown(figures["hit_ratio"], fleet["counter_ratio"], percent)
    assert is_shown(figures["counter_hits_tokens"], fleet["counter_hits_tokens"], amount)
    assert figures["requests"] == ("2", "2")
    assert await viewer.page.get_by_text("start vLLM with --enable-prompt-tokens-details").is_visible()
