"""A paused vLLM answers /health, says it is awake, and lets requests wait: only /is_paused tells, where it exists."""

from __future__ import annotations

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import chat
from tests.rig.stage import Stage


def asked(replica: SimReplica) -> int:
    """How often the router has asked whether it is paused."""
    return sum(arrival.path == "/is_paused" for arrival in replica.requests)


async def test_nothing_is_sent_to_a_paused_replica_until_it_goes_on(stage: Stage) -> None:
    paused, running = await stage.replicas(2, dev_mode=True)
    router = await stage.router(paused, running, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: router.books(paused).report.asleep is False)
    paused.state.pause()
    await router.until(lambda: router.books(paused).report.asleep is True)
    client = await stage.client(router)
    for _ in range(4):
        assert (await client.ask(chat())).replica == router.id_of(running)
    paused.state.go_on()
    await router.until(lambda: router.books(paused).report.asleep is False)
    assert router.id_of(paused) in {(await client.ask(chat())).replica for _ in range(4)}


async def test_an_engine_without_the_route_is_asked_once_for_each_of_its_lives(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)

    def scrapes() -> int:
        return sum(arrival.path == "/metrics" for arrival in replica.requests)

    await stage.ask(router, chat())  # so that its counters go back when it restarts
    await router.until(lambda: bool(router.books(replica).report.prefix_queries_tokens))
    await replica.wait_for(lambda: scrapes() >= 4, 5.0)
    assert asked(replica) == 1
    replica.restart_cold()
    await replica.wait_for(lambda: asked(replica) == 2, 5.0)
    before = scrapes()
    await replica.wait_for(lambda: scrapes() >= before + 3, 5.0)
    assert asked(replica) == 2
    assert router.books(replica).report.asleep is False


async def test_it_is_known_to_be_paused_though_its_metrics_can_not_be_read(stage: Stage) -> None:
    replica = await stage.replica(dev_mode=True)
    replica.faults.set(Fault(FaultKind.METRICS_MISSING))
    replica.state.pause()
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: router.books(replica).report.asleep is True)
    replica.state.go_on()
    await router.until(lambda: router.books(replica).report.asleep is None)
