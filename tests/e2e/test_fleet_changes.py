"""A replica joins or leaves the fleet: only the sessions that must move do."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from router.app.house import add_replica, remove_replica
from router.ports import Endpoint
from router.sim.replica import SimReplica
from tests.rig.client import CHAT, Client, request
from tests.rig.load import load
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk, fleet_of


async def speak(client: Client, talks: list[ChatTalk]) -> dict[int, tuple[str | None, str | None]]:
    """Let every conversation go on by a turn; where each went, and why."""
    went = {}
    for talk in talks:
        answer = await client.ask(request(CHAT, {"model": "sim-model"} | talk.ask()))
        assert answer.status == 200
        talk.take(answer)
        went[talk.number] = (answer.replica, answer.reason)
    return went


async def test_a_new_replica_moves_no_session_and_takes_new_ones(stage: Stage) -> None:
    router, _ = await fleet_of(stage, count=3)
    client = await stage.client(router)
    talks = [ChatTalk(number, stream=False) for number in range(12)]
    before = await speak(client, talks)
    newcomer = await stage.replica()
    add_replica(router.house, Endpoint(newcomer.url))
    after = await speak(client, talks)
    assert {number: name for number, (name, _) in after.items()} == {
        number: name for number, (name, _) in before.items()
    }
    assert {reason for _, reason in after.values()} == {"warm"}
    fresh = await speak(client, [ChatTalk(number, stream=False) for number in range(100, 112)])
    assert router.id_of(newcomer) in {name for name, _ in fresh.values()}


async def test_a_replica_that_leaves_moves_only_its_own_sessions_and_spreads_them(stage: Stage) -> None:
    router, replicas = await fleet_of(stage, count=4)
    client = await stage.client(router)
    talks = [ChatTalk(number, stream=False) for number in range(36)]
    before = await speak(client, talks)
    gone = router.id_of(replicas[0])
    index_bytes = router.house.fleet.index.size_bytes
    remove_replica(router.house, gone)
    assert router.house.fleet.index.size_bytes < index_bytes, "its blocks leave the index"
    after = await speak(client, talks)
    moved = {number for number in after if after[number][0] != before[number][0]}
    assert moved == {number for number, (name, _) in before.items() if name == gone}
    homes = Counter(after[number][0] for number in moved)
    assert len(homes) == 3, "not all to one neighbour"
    page = (await (await router.admin()).get("/metrics")).text
    assert gone not in page
    assert replicas[0].url not in (await (await router.admin()).get("/api/fleet")).text


async def test_a_stream_of_a_replica_that_leaves_ends_as_it_would(stage: Stage) -> None:
    router, replicas = await fleet_of(stage, count=2, time_scale=1.0)
    client = await stage.client(router)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 20, "ignore_eos": True}
    client.send(request(CHAT, body))
    answer = await client.head()
    await client.chunk(answer)
    assert answer.replica is not None
    remove_replica(router.house, answer.replica)
    await client.rest(answer)
    assert answer.events()[-1] == "[DONE]"
    await router.until(lambda: not router.house.plane.active)
    again = await client.ask(request(CHAT, body | {"stream": False}))
    assert again.replica not in (None, answer.replica)
    assert sum(replica.open_connections for replica in replicas) <= 3


def write(path: Path, replicas: list[SimReplica]) -> None:
    """Replace the file as a whole."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"replicas": [{"url": replica.url} for replica in replicas]}))
    new.replace(path)


async def test_a_file_scales_the_fleet_up_and_down_under_load(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    first, *others = replicas = await stage.replicas(4)
    write(path, [first, *others[:2]])
    settings = {"discover": (f"file:{path}",), "discover_interval_s": 0.1, "scrape_interval_s": 0.1}
    router = await stage.router(watched=True, **settings)

    async def found(count: int) -> None:
        await router.until(lambda: len(router.house.fleet) == count, "the file is not followed")

    await found(3)
    client = await stage.client(router)
    talks = [ChatTalk(number, stream=False) for number in range(12)]
    async with load(stage, router) as chats:
        before = await speak(client, talks)
        write(path, replicas)
        await found(4)
        newcomer = router.id_of(others[2])
        await router.until(lambda: newcomer in chats.answered, "the new replica is not used")
        grown = await speak(client, talks)
        assert {number for number in grown if grown[number][0] == newcomer} == set()
        gone = router.id_of(first)
        write(path, others)
        await found(3)
        after = await speak(client, talks)
    moved = {number for number in after if after[number][0] != grown[number][0]}
    assert moved >= {number for number, (name, _) in grown.items() if name == gone}
    assert gone not in {name for name, _ in after.values()}
    assert {name for name, _ in before.values()} <= {gone, *(router.id_of(replica) for replica in others[:2])}
