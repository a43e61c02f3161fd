"""Two routers, one after the other, on the same state file: the second shows what the first one saw."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
import xxhash

from router.adapters.state_file import Saved, read, write
from router.app.keeping import Keeper, save
from tests.rig.client import chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import TALKS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "warmroute.state"


async def shown(router: Router, what: str = "overview") -> Any:
    return (await (await router.admin()).get(f"/api/{what}")).json()


async def driven(stage: Stage, router: Router) -> None:
    client = await stage.client(router)
    talks = [TALKS["chat"](number) for number in range(4)]
    for _ in range(3):
        for talk in talks:
            talk.take(await client.ask(request(talk.path, {"model": "sim-model"} | talk.ask())))
    await router.idle()


async def test_the_history_survives_a_restart(stage: Stage, path: Path) -> None:
    replicas = await stage.replicas(2)
    first = await stage.router(*replicas, state_file=path)
    await driven(stage, first)
    save(first.house)
    before, sessions = await shown(first), await shown(first, "sessions")
    assert before["windows"]["24h"]["requests"] == 12
    assert before["windows"]["24h"]["engine_cached_tokens"] > 0
    assert len(sessions) == 4
    second = await stage.router(*replicas, state_file=path)
    after = await shown(second)
    assert after["windows"]["24h"] == before["windows"]["24h"]
    assert after["models"]["sim-model"]["24h"] == before["models"]["sim-model"]["24h"]
    by_id = {row["id"]: row["windows"]["24h"] for row in before["replicas"]}
    assert {row["id"]: row["windows"]["24h"] for row in after["replicas"]} == by_id
    assert await shown(second, "sessions") == sessions
    await stage.ask(second, chat())
    assert (await shown(second))["windows"]["24h"]["requests"] == 13


async def test_it_is_written_while_the_router_runs(stage: Stage, path: Path) -> None:
    router = await stage.router(await stage.replica(), state_file=path)
    keeper = Keeper(router.house, path)
    await driven(stage, router)
    assert await keeper.write_if_changed()
    second = await stage.router(router.house.endpoints[next(iter(router.house.endpoints))].url, state_file=path)
    assert (await shown(second))["windows"]["24h"]["requests"] == 12


async def test_a_history_that_can_not_be_used_spoils_nothing_else(
    stage: Stage, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = await stage.replicas(2)
    first = await stage.router(*replicas, state_file=path)
    talk = TALKS["chat"](1)
    talk.take(await stage.ask(first, request(talk.path, {"model": "sim-model"} | talk.ask())))
    save(first.house)
    good = read(path)
    assert good is not None
    write(path, msgspec.structs.replace(good, history=b"\xc1 nothing"))
    second = await stage.router(*replicas, state_file=path)
    (warning,) = [record for record in caplog.records if record.name == "warmroute.state"]
    assert (warning.levelno, "history" in warning.getMessage()) == (logging.WARNING, True)
    assert (await shown(second))["windows"]["24h"]["requests"] == 0
    answer = await stage.ask(second, request(talk.path, {"model": "sim-model"} | talk.ask()))
    assert answer.reason == "warm"


def without_history(path: Path) -> None:
    """Make of a state file what the version before this one would have written."""
    head, _, rest = path.read_bytes().partition(b"\n")
    values = msgspec.msgpack.decode(rest[16:])
    body = msgspec.msgpack.encode(values[: len(Saved.__struct_fields__) - 1])
    path.write_bytes(head + b"\n" + xxhash.xxh3_128_digest(body) + body)


async def test_a_file_from_before_there_was_a_history(
    stage: Stage, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replica = await stage.replica()
    save((await stage.router(replica, state_file=path)).house)
    without_history(path)
    second = await stage.router(replica, state_file=path)
    assert not [record for record in caplog.records if record.name == "warmroute.state"]
    assert (await shown(second))["windows"]["24h"]["requests"] == 0
