"""What the admin port shows of other routers and of Redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.app.test_admin import body_of, samples, total
from tests.redis_server import running_redis
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.stage import Stage

STORY = "Once upon a time there was a router that knew where everybody had been. " * 40


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url.replace("redis://", "redis://:@")


async def two(stage: Stage, url: str, replicas: list[SimReplica]) -> list[Router]:
    routers = [await stage.router(*replicas, redis=url, redis_deadline_ms=500) for _ in range(2)]
    for router in routers:
        store = router.house.store
        assert store is not None
        await router.until(lambda peers=store.peers: len(peers) == 1, "no router is heard")  # type: ignore[misc]
    return routers


async def fleet(router: Router) -> dict[str, Any]:
    shown: dict[str, Any] = (await (await router.admin()).get("/api/fleet")).json()
    return shown


async def test_a_router_on_its_own_says_so(stage: Stage) -> None:
    shown = await fleet(await stage.router(await stage.replica()))
    assert (shown["routers"], shown["redis"]) == ([], None)


async def test_the_fleet_shows_all_routers_with_their_ledgers(stage: Stage, redis_url: str) -> None:
    (replica,) = replicas = await stage.replicas(1)
    replica.faults.set(Fault(FaultKind.HANG))
    here, there = await two(stage, redis_url, replicas)
    client = await stage.client(there)
    client.send(chat(STORY))
    await here.until(lambda: here.books(replica).peer_load.streams == 1)
    shown, ident = await fleet(here), here.id_of(replica)
    assert ident == there.id_of(replica), "all routers name a replica alike"
    own, peer = shown["routers"]
    assert own == {"id": here.house.store.router, "self": True, "heard_s": 0.0, "ledgers": {}}  # type: ignore[union-attr]
    assert (peer["id"], peer["self"]) == (there.house.store.router, False)  # type: ignore[union-attr]
    tokens = there.books(replica).ledger.uncached_tokens
    assert peer["ledgers"] == {ident: {"uncached_tokens": tokens, "pending": 1, "streams": 1}}
    assert 0 <= peer["heard_s"] < 3
    assert shown["replicas"][0]["peer_ledger"] == {"uncached_tokens": tokens, "streams": 1}
    assert shown["replicas"][0]["ledger"] == {"uncached_tokens": 0, "streams": 0}
    metrics = await samples(here)
    assert total(metrics["warmroute_peer_ledger_tokens"], replica=ident) == tokens
    assert total(metrics["warmroute_peer_inflight_requests"], replica=ident) == 1
    assert total(metrics["warmroute_known_routers"]) == 2


async def test_redis_is_shown_without_its_password(stage: Stage, redis_url: str) -> None:
    here, _ = await two(stage, redis_url, await stage.replicas(1))
    shown = (await fleet(here))["redis"]
    assert shown["address"] == redis_url.replace(":@", "")
    assert (shown["state"], shown["backlog"], shown["dropped"]) == ("up", 0, {"news": 0, "turns": 0})


async def test_what_is_known_is_counted_by_where_it_came_from(stage: Stage, redis_url: str) -> None:
    replicas = await stage.replicas(2)
    here, there = await two(stage, redis_url, replicas)
    mine = [("x-session-id", "counted")]
    await stage.ask(here, chat(STORY, headers=mine))  # new: asked, and nothing is known
    await stage.ask(here, chat(STORY, headers=mine))  # this router's own
    await there.until(lambda: any(len(book.mirror) for book in there.house.fleet))
    await stage.ask(there, chat(STORY, headers=mine))  # told by the other router before it was wanted
    for router in (here, there):
        await router.idle()
        await router.stop()
    (late, _) = await two(stage, redis_url, replicas)
    await stage.ask(late, chat(STORY, headers=mine))  # a router that has heard nothing
    counted = {name: await samples(router) for name, router in (("late", late),)}["late"]
    assert total(counted["warmroute_recalls_total"], source="redis") == 1
    assert total(counted["warmroute_redis_reads_total"], result="found") == 1
    assert total(counted["warmroute_redis_read_seconds_count"]) == 1
    assert total(counted["warmroute_redis_state"], state="up") == 1
    assert total(counted["warmroute_redis_state"]) == 1
    assert total(counted["warmroute_redis_commands_total"]) >= 2
    sources = [record.source for record in here.records.finished + there.records.finished]
    assert sources == ["none", "local", "local"]


async def test_explaining_asks_redis_as_a_request_would(stage: Stage, redis_url: str) -> None:
    replicas = await stage.replicas(3)
    routers = await two(stage, redis_url, replicas)
    first = await stage.ask(routers[0], chat("explain " + STORY))
    for router in routers:
        await router.idle()
        await router.stop()
    late, _ = await two(stage, redis_url, replicas)
    admin = await late.admin()
    decision = (await admin.post("/api/explain", content=body_of(chat("explain " + STORY)))).json()
    assert (decision["replica"], decision["matched_tokens"] > 0) == (first.replica, True)
