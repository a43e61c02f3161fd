"""A 500 in the engine's own words is an answer: work may have been done, so it is not asked for again."""

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat
from tests.rig.stage import Stage


async def test_it_comes_back_as_it_is_and_is_not_retried(stage: Stage) -> None:
    failing, other = await stage.replicas(2)
    failing.faults.set(Fault(FaultKind.STATUS, status=500, message="something broke"))
    router = await stage.router(failing, other)
    answer = await stage.ask(router, chat())
    assert answer.status == 500
    assert answer.json() == {
        "error": {"message": "something broke", "type": "InternalServerError", "param": None, "code": 500}
    }
    assert answer.replica == router.id_of(failing)
    assert not other.requests
    assert router.records.finished[-1].outcome == "errored"


async def test_one_500_ejects_nobody(stage: Stage) -> None:
    """A poisoned prompt must not take the whole fleet down, replica by replica."""
    replicas = await stage.replicas(2)
    for replica in replicas:
        replica.faults.set(Fault(FaultKind.STATUS, status=500))
    router = await stage.router(*replicas)
    client = await stage.client(router)
    for _ in range(6):
        assert (await client.ask(chat())).status == 500
    assert all(replica.health.up for replica in router.house.fleet)


async def test_a_long_500_passes_too(stage: Stage) -> None:
    failing, other = await stage.replicas(2)
    failing.faults.set(Fault(FaultKind.STATUS, status=500, message="trace " * 40_000))
    router = await stage.router(failing, other)
    answer = await stage.ask(router, chat())
    assert answer.status == 500
    assert answer.json()["error"]["message"] == "trace " * 40_000
    assert not other.requests


async def test_a_4xx_is_the_clients_fault_and_says_nothing_about_the_replica(stage: Stage) -> None:
    replica, other = await stage.replicas(2)
    router = await stage.router(replica, other)
    client = await stage.client(router)
    for status in (400, 401, 404, 408, 422):
        replica.faults.set(Fault(FaultKind.STATUS, status=status, count=1))
        other.faults.set(Fault(FaultKind.STATUS, status=status, count=1))
        assert (await client.ask(chat())).status == status
        replica.faults.clear()
        other.faults.clear()
    assert router.records.failed == []
    assert all(known.health.up for known in router.house.fleet)
    assert len(replica.requests) + len(other.requests) == 5
