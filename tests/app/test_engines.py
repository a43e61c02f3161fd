"""The watches: begun and ended while the router runs, one for each engine, models read when they are asked for."""

from __future__ import annotations

from typing import Any

from router.app.house import add_replica, remove_replica
from router.app.roster.engines import Watches
from router.core.health import State
from router.core.types import ReplicaId
from router.ports import Endpoint
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.tasks import Tasks


def count(replica: SimReplica, path: str) -> int:
    return sum(arrival.path == path for arrival in replica.requests)


async def unwatched(stage: Stage, **settings: Any) -> Router:
    """A router without replicas whose watches are the test's."""
    return await stage.router(**settings)


async def test_a_replica_that_comes_is_watched_and_one_that_goes_is_not(stage: Stage) -> None:
    replica = await stage.replica()
    router = await unwatched(stage, scrape_interval_s=0.1, health_interval_s=0.1)
    async with Tasks() as tasks:
        watches = Watches(router.house, tasks.spawn)
        replica_id = add_replica(router.house, Endpoint(replica.url))
        watches.begin(replica_id)
        await router.until(lambda: router.books(replica).health.state is State.READY)
        await router.until(lambda: router.books(replica).models == {"sim-model"})
        await router.until(lambda: router.books(replica).report.kv_tokens == 300_000)
        watches.end(replica_id)
        remove_replica(router.house, replica_id)
        await tasks.ended()
    assert router.house.models.merged()["data"] == []


async def test_a_watch_may_be_ended_before_it_has_begun_and_twice(stage: Stage) -> None:
    replica = await stage.replica()
    router = await unwatched(stage)
    async with Tasks() as tasks:
        watches = Watches(router.house, tasks.spawn)
        replica_id = add_replica(router.house, Endpoint(replica.url))
        watches.begin(replica_id)
        watches.end(replica_id)
        watches.end(replica_id)
        await tasks.ended()


async def test_a_replica_that_goes_while_it_is_read_harms_nothing(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.HANG, path="*"))
    router = await unwatched(stage)
    async with Tasks() as tasks:
        watches = Watches(router.house, tasks.spawn)
        replica_id = add_replica(router.house, Endpoint(replica.url))
        watches.begin(replica_id)
        await replica.wait_for(lambda: len(replica.requests) >= 3, 5.0)
        remove_replica(router.house, replica_id)
        watches.end(replica_id)
        await tasks.ended()
        await replica.wait_for(lambda: replica.open_connections == 0, 5.0)


async def test_the_ranks_of_an_engine_have_one_watch(stage: Stage) -> None:
    replica = await stage.replica(data_parallel=4)
    router = await unwatched(stage, scrape_interval_s=0.1, health_interval_s=0.1)
    async with Tasks() as tasks:
        watches = Watches(router.house, tasks.spawn)
        ranks: list[ReplicaId] = [add_replica(router.house, Endpoint(replica.url, rank=rank)) for rank in range(4)]
        for rank in ranks:
            watches.begin(rank)
        await router.until(lambda: all(known.report.kv_tokens == 300_000 for known in router.house.fleet))
        await router.until(lambda: all(known.health.state is State.READY for known in router.house.fleet))
        await router.until(lambda: all(known.models for known in router.house.fleet))
        assert len(tasks.running) == 1
        for rank in ranks[:3]:
            watches.end(rank)
            remove_replica(router.house, rank)
        before = count(replica, "/metrics")
        await replica.wait_for(lambda: count(replica, "/metrics") >= before + 3, 5.0)
        watches.end(ranks[3])
        await tasks.ended()


async def test_a_rank_that_the_engine_has_not_gets_no_requests(stage: Stage) -> None:
    replica = await stage.replica(data_parallel=2)
    router = await stage.router(f"{replica.url}?ranks=3", watched=True, scrape_interval_s=0.1)
    missing = next(known for known, endpoint in router.house.endpoints.items() if endpoint.rank == 2)
    await router.until(lambda: router.house.fleet[missing].report.asleep is True)
    others = [known for known in router.house.fleet if known.replica_id != missing]
    await router.until(lambda: all(known.report.asleep is False for known in others))


async def test_models_are_read_soon_when_they_are_asked_for_and_not_each_time(stage: Stage) -> None:
    replica = await stage.replica()
    router = await unwatched(stage, models_interval_s=3600)
    async with Tasks() as tasks:
        watches = Watches(router.house, tasks.spawn)
        watches.begin(add_replica(router.house, Endpoint(replica.url)))
        await router.until(lambda: router.books(replica).models == {"sim-model"})
        replica.state.adapters.append("adapter")
        for _ in range(100):
            watches.refresh_models()
        await router.until(lambda: router.books(replica).models == {"sim-model", "adapter"})
        assert count(replica, "/v1/models") == 2
    listed = router.house.models.merged()["data"]
    assert isinstance(listed, list)
    assert [model["id"] for model in listed] == ["adapter", "sim-model"]


async def test_models_that_could_not_be_read_are_read_again_soon(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.STATUS, path="/v1/models", count=2))
    router = await stage.router(replica, watched=True, models_interval_s=3600)
    await router.until(lambda: router.books(replica).models == {"sim-model"})
    assert count(replica, "/v1/models") == 3
