"""503: the engine's queue is full. Back-pressure feeds the load, not the breaker; another replica may have room."""

import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.types import EngineConfig
from tests.rig.client import chat
from tests.rig.stage import Stage


async def test_the_request_goes_to_a_replica_with_room(stage: Stage) -> None:
    full, free = await stage.replicas(2)
    full.faults.set(Fault(FaultKind.STATUS, status=503, count=1))
    router = await stage.router(full, free)
    answer = await stage.ask(router, chat())
    assert (answer.status, answer.replica) == (200, router.id_of(free))
    assert router.records.failed == [(router.id_of(full), "busy")]


async def test_it_is_load_and_ejects_nobody(stage: Stage) -> None:
    full, free = await stage.replicas(2)
    full.faults.set(Fault(FaultKind.STATUS, status=503))
    router = await stage.router(full, free)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 200
    assert router.books(full).health.up
    assert router.books(full).queue_s(router.house.plane.clock()) > 0
    for _ in range(3):
        assert (await client.ask(chat())).replica == router.id_of(free)
    assert len(full.requests) == 1, "for a moment nothing new is sent to it"


async def test_when_all_are_full_the_engines_own_answer_comes_back(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    for replica in replicas:
        replica.faults.set(Fault(FaultKind.STATUS, status=503))
    router = await stage.router(*replicas)
    answer = await stage.ask(router, chat())
    assert answer.status == 503
    assert answer.json()["error"]["message"].startswith("The engine is currently busy")
    assert [len(replica.requests) for replica in replicas] == [1, 1]


async def test_an_engines_retry_after_comes_back(stage: Stage) -> None:
    full = await stage.replica()
    full.faults.set(Fault(FaultKind.STATUS, status=503, retry_after_s=7))
    router = await stage.router(full)
    assert (await stage.ask(router, chat())).header("retry-after") == "7"


async def test_it_does_not_end_a_streak_of_failures(stage: Stage) -> None:
    """An ejected replica whose trial meets 503 is still ejected."""
    bad = await stage.replica()
    router = await stage.router(bad)
    client = await stage.client(router)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, count=2))
    for _ in range(2):
        assert (await client.ask(chat())).status == 503
    failures = router.books(bad).health.failures
    assert failures == 2
    bad.faults.set(Fault(FaultKind.STATUS, status=503, count=1))
    assert (await client.ask(chat())).status == 503
    assert router.books(bad).health.failures == failures
    assert (await client.ask(chat())).status == 200
    assert router.books(bad).health.up


async def test_a_real_full_queue(stage: Stage) -> None:
    engine = EngineConfig(max_num_seqs=1, max_num_queued_reqs=1)
    replicas = await stage.replicas(2, engine=engine, time_scale=1.0)
    router = await stage.router(*replicas)
    clients = [await stage.client(router) for _ in range(5)]
    for client in clients:
        client.send(chat(max_tokens=8, ignore_eos=True))
    answers = [await client.answer() for client in clients]
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 200, 503]


@pytest.mark.parametrize("status", [502, 504])
async def test_502_and_504_of_a_gateway_before_the_engine_are_asked_for_elsewhere(stage: Stage, status: int) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.STATUS, status=status))
    router = await stage.router(bad, good)
    answer = await stage.ask(router, chat())
    assert (answer.status, answer.replica) == (200, router.id_of(good))
    assert not router.books(bad).health.up
