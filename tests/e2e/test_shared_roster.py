"""What the admin API of one router does holds at all that share a Redis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from router.adapters.redis_store.state import State as RedisState
from router.core.health import State
from router.sim.replica import SimReplica
from tests.redis_server import RedisServer, running_redis
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.sharing import PATIENT_MS, store_of
from tests.rig.stage import Stage

STORY = "The harbour pilot came aboard before the storm. " * 40


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


async def routers(stage: Stage, url: str, prefix: str, *replicas: SimReplica) -> list[Router]:
    """Two routers that know each other."""
    settings: dict[str, Any] = {"redis": url, "redis_prefix": prefix, "redis_deadline_ms": PATIENT_MS}
    both = [await stage.router(*replicas, **settings) for _ in range(2)]
    for router in both:
        await router.until(lambda router=router: len(store_of(router).peers) == 1, "no router is heard")  # type: ignore[misc]
    return both


async def test_a_replica_that_is_put_in_and_taken_out_at_one_router_is_so_at_both(stage: Stage, redis_url: str) -> None:
    here, there = await routers(stage, redis_url, "put")
    replica = await stage.replica()
    put = await (await here.admin()).put("/api/replicas/gpu-1", json={"url": replica.url, "weight": 2})
    ident = put.json()["id"]
    await there.until(lambda: ident in there.house.fleet, "the other router does not hear of it")
    first = await stage.ask(here, chat(STORY))
    await there.until(lambda: len(there.books(replica).mirror) > 0, "its requests are not heard of")
    second = await stage.ask(there, chat(STORY))
    assert (first.replica, second.replica, second.reason) == (ident, ident, "warm")
    shown = (await (await there.admin()).get("/api/replicas/gpu-1")).json()
    assert (shown["id"], shown["weight"], shown["sources"]) == (ident, 2.0, ["the admin API"])
    await (await there.admin()).put("/api/replicas/gpu-1", json={"url": replica.url, "weight": 3})
    await here.until(lambda: here.books(replica).weight == 3.0)
    assert (await (await there.admin()).delete("/api/replicas/gpu-1")).json()["state"] == "gone"
    await here.until(lambda: not len(here.house.fleet), "the other router keeps it")


async def test_a_drain_at_one_router_is_one_at_both_and_at_those_that_come_later(stage: Stage, redis_url: str) -> None:
    replicas = await stage.replicas(2)
    here, there = await routers(stage, redis_url, "drain", *replicas)
    ident = here.id_of(replicas[0])
    assert (await (await here.admin()).post(f"/api/replicas/{ident}/drain")).json()["state"] == "draining"
    await there.until(lambda: there.books(replicas[0]).health.state is State.DRAINING)
    shown = (await (await there.admin()).get(f"/api/replicas/{ident}")).json()
    assert (shown["state"], shown["drained_by"]) == ("draining", "operator")
    late = await stage.router(*replicas, redis=redis_url, redis_prefix="drain", redis_deadline_ms=PATIENT_MS)
    assert late.books(replicas[0]).health.state is State.DRAINING, "before its first request"
    for router in (here, there, late):
        asked = [await stage.ask(router, chat(f"{number} {STORY}")) for number in range(3)]
        assert {answer.replica for answer in asked} == {here.id_of(replicas[1])}
    await (await there.admin()).post(f"/api/replicas/{ident}/undrain")
    for router in (here, late):
        await router.until(lambda router=router: router.books(replicas[0]).health.up)  # type: ignore[misc]


async def test_without_redis_each_does_what_it_is_told_and_the_others_hear_of_it_later(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    with RedisServer() as server:
        here, there = await routers(stage, server.url, "away", *replicas)
        server.kill()
        for router in (here, there):
            await router.until(lambda router=router: store_of(router).state is RedisState.DOWN)  # type: ignore[misc]
        first, second = map(here.id_of, replicas)
        await (await here.admin()).post(f"/api/replicas/{first}/drain")
        await (await there.admin()).post(f"/api/replicas/{second}/drain")
        assert [book.health.state is State.DRAINING for book in here.house.fleet] == [True, False]
        assert (await stage.ask(here, chat())).replica == second
        await (await there.admin()).post(f"/api/replicas/{second}/undrain")
        server.start()
        await there.until(lambda: there.books(replicas[0]).health.state is State.DRAINING)
        for router in (here, there):
            assert [book.health.state is State.DRAINING for book in router.house.fleet] == [True, False]
        for router in (here, there):
            await router.idle()
            await router.stop()


async def test_the_last_word_holds_wherever_it_was_said(stage: Stage, redis_url: str) -> None:
    replicas = await stage.replicas(1)
    both = await routers(stage, redis_url, "last", *replicas)
    ident = both[0].id_of(replicas[0])
    for number in range(6):
        await (await both[number % 2].admin()).post(f"/api/replicas/{ident}/{('undrain', 'drain')[number % 3 == 0]}")
        draining = number % 3 == 0
        for router in both:
            await router.until(
                lambda router=router, draining=draining: (  # type: ignore[misc]
                    (router.books(replicas[0]).health.state is State.DRAINING) is draining
                )
            )
