"""Two routers, one after the other, on the same state file and the same replicas."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from router.adapters.state_file import read
from router.app.keeping import Keeper, save
from router.sim.replica import SimReplica
from tests.rig.client import request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import BLOCK_TOKENS, TALKS, AnyTalk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "warmroute.state"


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def obstruct(path: Path) -> None:
    path.mkdir()


def clear(path: Path) -> None:
    path.rmdir()


def get(path: Path) -> bytes:
    return path.read_bytes()


async def turn(stage: Stage, router: Router, talk: AnyTalk) -> tuple[str | None, str | None, int, int]:
    """One turn: reason, replica, predicted cached tokens, cached tokens."""
    answer = await stage.ask(router, request(talk.path, {"model": "sim-model"} | talk.ask()))
    assert answer.status == 200, answer.body
    _, cached = talk.take(answer)
    return answer.reason, answer.replica, answer.matched_tokens, cached


async def watched(stage: Stage, path: Path, replicas: list[SimReplica]) -> Router:
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1, state_file=path)
    await router.until(lambda: all(router.books(replica).report.running is not None for replica in replicas))
    await router.until(path.exists, "the first write is at the start")
    return router


@pytest.mark.parametrize("kind", TALKS)
async def test_the_next_turn_is_warm_through_the_next_router(stage: Stage, path: Path, kind: str) -> None:
    replicas = await stage.replicas(3)
    first = await watched(stage, path, replicas)
    talks = [TALKS[kind](number) for number in range(6)]
    homes = {}
    for _ in range(2):
        for talk in talks:
            _, homes[talk.number], _, _ = await turn(stage, first, talk)
    assert len(set(homes.values())) == 3
    await first.idle()
    save(first.house)
    second = await watched(stage, path, replicas)
    assert second.house.endpoints == first.house.endpoints, "the same addresses have the same ids"
    for talk in talks:
        reason, replica, predicted, cached = await turn(stage, second, talk)
        assert (reason, replica) == ("warm", homes[talk.number])
        assert cached > 0
        assert abs(predicted - cached) <= max(BLOCK_TOKENS, 0.05 * cached)


async def test_replicas_that_are_found_anew_are_remembered(stage: Stage, path: Path, tmp_path: Path) -> None:
    replicas = await stage.replicas(3)
    listed = tmp_path / "replicas.json"
    listed.write_text(json.dumps({"replicas": [{"url": replica.url} for replica in replicas]}))
    found: dict[str, Any] = {"watched": True, "discover": (f"file:{listed}",), "state_file": path}
    found["discover_interval_s"] = 0.1
    first = await stage.router(**found)
    await first.until(lambda: len(first.house.fleet) == 3)
    await first.until(path.exists, "the first write is behind us")
    talk = TALKS["chat"](1)
    _, home, _, _ = await turn(stage, first, talk)
    await first.idle()
    save(first.house)
    second = await stage.router(**found)
    await second.until(lambda: len(second.house.fleet) == 3)
    reason, replica, _, cached = await turn(stage, second, talk)
    assert (reason, replica, cached > 0) == ("warm", home, True)


async def test_what_is_kept_stays_while_its_replicas_are_not_found(stage: Stage, path: Path, tmp_path: Path) -> None:
    first = await stage.router(await stage.replica(), watched=True, state_file=path)
    await first.until(path.exists)
    save(first.house)
    before = get(path)
    second = await stage.router(watched=True, discover=(f"file:{tmp_path / 'missing.json'}",), state_file=path)
    save(second.house)
    assert get(path) == before


async def test_without_the_file_it_would_not_be(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    first, second = [await stage.router(*replicas, watched=True) for _ in range(2)]
    talk = TALKS["chat"](1)
    await turn(stage, first, talk)
    reason, _, predicted, _ = await turn(stage, second, talk)
    assert (reason, predicted) == ("new", 0)
    assert second.house.endpoints != first.house.endpoints


async def test_an_engine_that_restarted_in_between_is_cold_and_the_others_are_not(stage: Stage, path: Path) -> None:
    replicas = await stage.replicas(2)
    first = await watched(stage, path, replicas)
    talks = [TALKS["chat"](number) for number in range(4)]
    homes = {talk.number: (await turn(stage, first, talk))[1] for talk in talks}
    await first.until(lambda: all(first.books(replica).report.prefix_queries_tokens for replica in replicas))
    save(first.house)
    await first.stop()
    cold, warm = replicas
    cold.restart_cold()
    second = await watched(stage, path, replicas)
    assert len(second.books(cold).mirror) == 0
    assert len(second.books(warm).mirror) == len(first.books(warm).mirror) > 0
    for talk in talks:
        at_home_there = homes[talk.number] == second.id_of(warm)
        assert ((await turn(stage, second, talk))[0] == "warm") is at_home_there


async def test_the_file_is_written_while_the_router_runs(stage: Stage, path: Path) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, state_file=path)
    await router.until(path.exists, "the first write is at the start")
    keeper = Keeper(router.house, path)
    assert await keeper.write_if_changed()
    assert not await keeper.write_if_changed(), "nothing has happened since"
    await turn(stage, router, TALKS["chat"](1))
    assert await keeper.write_if_changed()
    saved = read(path)
    assert saved is not None
    assert saved.salt == router.house.salt
    (kept,) = saved.snapshot.replicas
    assert kept.replica == router.id_of(replica)
    assert kept.releases.hashes


async def test_nothing_of_what_was_said_is_in_it(stage: Stage, path: Path) -> None:
    router = await stage.router(await stage.replica(), state_file=path)
    answer = await stage.ask(
        router,
        request("/v1/chat/completions", {
            "model": "sim-model", "session_id": "alice-of-the-harbour",
            "messages": [{"role": "user", "content": "the anchor is lost " * 100}],
        }),
    )  # fmt: skip
    assert answer.status == 200
    save(router.house)
    content = get(path)
    assert b"sim-model" in content, "model names are"
    said = answer.json()["choices"][0]["message"]["content"].encode()
    for text in (b"anchor", b"alice", said[:20], next(iter(router.house.endpoints.values())).url.encode()):
        assert text not in content


@pytest.mark.parametrize("content", [b"", b"warmroute state 99 little\n" + bytes(100), b"port = 8080\n", bytes(5_000)])
async def test_a_file_that_can_not_be_used_costs_one_warning_and_a_cold_start(
    stage: Stage, path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    put(path, content)
    replica = await stage.replica()
    router = await stage.router(replica, state_file=path)
    (warning,) = [record for record in caplog.records if record.name == "warmroute.state"]
    assert warning.levelno == logging.WARNING
    assert str(path) in warning.getMessage()
    reason, _, predicted, _ = await turn(stage, router, TALKS["chat"](1))
    assert (reason, predicted) == ("new", 0)


async def test_a_path_that_can_not_be_written_is_said_once_and_stops_nothing(
    stage: Stage, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    router = await stage.router(await stage.replica(), state_file=path)
    keeper = Keeper(router.house, path)
    obstruct(path)
    for _ in range(3):
        assert not await keeper.write_if_changed()
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "warmroute.state"]
    assert warning.startswith(f"state can't be kept in {path}: ")
    clear(path)
    assert await keeper.write_if_changed()
    assert read(path) is not None
    assert caplog.messages[-1] == f"state is kept in {path} again"
    assert (await turn(stage, router, TALKS["chat"](1)))[0] == "new"
