"""What a running router is asked: arrivals, the peak, think times, sizes, its recording; then advice from all of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from router.app.advise.asked import Asked
from router.app.advise.command import run_advise
from router.app.advise.live import Day, Live, Returns, peak_of, read_live, think_bound_s
from router.app.replay.asked import Asked as Traffic
from router.app.settings.sources import ConfigError
from router.replay.advice.record import read_data
from tests.rig.client import request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk

TALKS, TURNS = 4, 3


async def driven(stage: Stage, path: Path | None) -> tuple[Router, str]:
    """Some chats through a router with two replicas; gives its admin port's URL."""
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas, watched=True, record=path)
    await router.until(lambda: all(router.books(replica).report.kv_tokens for replica in replicas))
    client = await stage.client(router)
    talks = [ChatTalk(number, stream=False) for number in range(TALKS)]
    for _ in range(TURNS):
        for talk in talks:
            talk.take(await client.ask(request(talk.path, {"model": "sim-model", "max_tokens": 4} | talk.ask())))
    await router.idle()
    if path is not None:
        await router.until(lambda: router.house.recording.counts.written == TALKS * TURNS)
    return router, str((await router.admin()).base_url)


async def test_it_says_what_was_asked_of_it(stage: Stage, tmp_path: Path) -> None:
    router, url = await driven(stage, tmp_path / "traffic")
    live = await asyncio.to_thread(read_live, url)
    assert isinstance(live, Live)
    assert (live.replicas, live.recording) == (2, str(tmp_path / "traffic"))
    kv_tokens = [replica.report.kv_tokens for replica in router.house.fleet]
    assert live.kv_tokens == min(tokens for tokens in kv_tokens if tokens)
    assert live.prefill_tokens_per_s > 0
    facts = live.facts
    assert facts.models == ("sim-model",)
    assert facts.vllm_version == "0.32.0"
    assert facts.requests_per_s is not None
    assert facts.sessions_per_s is not None
    assert facts.sessions_per_s * TURNS == pytest.approx(facts.requests_per_s)
    assert facts.peak_hit_ratio is not None
    assert 0.5 < facts.peak_hit_ratio < 1
    rows = (await (await router.admin()).get("/api/decisions")).json()
    assert facts.prompt_p95_tokens == max(row["usage"]["prompt_tokens"] for row in rows)


async def test_advice_from_a_router_that_records(stage: Stage, tmp_path: Path) -> None:
    router, url = await driven(stage, tmp_path / "traffic")
    record = tmp_path / "decision.md"
    asked = Asked(Traffic("", jobs=1, target_ttft_p95_s=60.0), admin=url, record=record)
    assert await asyncio.to_thread(run_advise, asked) == 0
    data = read_data(record.read_text())
    assert (data.recommended, data.fleet.replicas, data.live and data.live.models) == (
        "free, prefix cache", 2, ("sim-model",)
    )  # fmt: skip
    assert data.fleet.kv_tokens == next(iter(router.house.fleet)).report.kv_tokens
    check = Asked(Traffic(""), admin=url, check=record, driver="570.1")
    assert await asyncio.to_thread(run_advise, check) == 0
    check = Asked(Traffic(""), admin=url, check=record, vllm_version="0.33.0")
    assert await asyncio.to_thread(run_advise, check) == 1


async def test_a_router_that_records_nothing_wants_a_trace(stage: Stage) -> None:
    _, url = await driven(stage, None)
    with pytest.raises(ConfigError, match="the router records nothing: start it with --record FILE, or give a trace"):
        await asyncio.to_thread(run_advise, Asked(Traffic(""), admin=url))


async def test_a_router_that_was_asked_nothing_yet(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    live = await asyncio.to_thread(read_live, str((await router.admin()).base_url))
    assert (live.facts.requests_per_s, live.facts.peak_hit_ratio, live.facts.prompt_p95_tokens) == (None, None, None)


def test_the_peak_is_the_busiest_step() -> None:
    day = Day(
        300.0, [None, 30, 600, 3], [None, 10, 1_000, 1], [None, 9, 400, 1], [None, 0, 0, 0], [None, 0, 0, 0]
    )  # fmt: skip
    assert peak_of(day) == (2.0, 0.4)
    silent = Day(300.0, [None, 6], [None, 0], [None, 0], [None, 100], [None, 25])
    assert peak_of(silent) == (0.02, 0.25), "engines that say nothing in answers have counters"
    assert peak_of(Day(300.0, [None, 0], [None, 0], [None, 0], [None, 0], [None, 0])) == (None, None)


def test_think_times_are_read_from_returns() -> None:
    returns = Returns([1.0, 10.0, 100.0], [5, 0, 3, 0], [0, 0, 1, 1])
    bounds = [think_bound_s(returns, share) for share in (0.5, 0.51, 0.9, 0.91)]
    assert bounds == [1.0, 100.0, 100.0, float("inf")]
    assert think_bound_s(Returns([1.0], [0, 0], [0, 0]), 0.5) is None
