"""A health check that fails or is not answered: one is no outage, several in a row are; the first good one ends it."""

from __future__ import annotations

import pytest

from router.core.health import Cause, State
from router.core.types import OutcomeKind
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import chat
from tests.rig.stage import Stage

FAILING = [
    Fault(FaultKind.STATUS, status=500, path="/health"),
    Fault(FaultKind.STATUS, status=503, path="/health"),
    Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, path="/health"),
]


def probes(replica: SimReplica) -> int:
    return sum(arrival.path == "/health" for arrival in replica.requests)


@pytest.mark.parametrize("fault", FAILING, ids=lambda fault: f"{fault.kind}-{fault.status}")
async def test_several_failed_probes_in_a_row_take_a_replica_out(stage: Stage, fault: Fault) -> None:
    failing, good = await stage.replicas(2)
    router = await stage.router(failing, good, watched=True, health_interval_s=0.1, health_failures=3)
    health = router.books(failing).health
    await router.until(lambda: health.state is State.READY)
    failing.faults.set(fault)
    await router.until(lambda: health.state is State.EJECTED)
    assert health.cause is Cause.PROBES
    client = await stage.client(router)
    for _ in range(4):
        assert (await client.ask(chat())).replica == router.id_of(good)
    failing.faults.clear()
    await router.until(lambda: health.up, "the first good probe did not readmit it")


async def test_one_failed_probe_is_no_outage(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, health_interval_s=0.1, health_failures=3)
    health = router.books(replica).health
    await router.until(lambda: health.state is State.READY)
    replica.faults.set(Fault(FaultKind.STATUS, status=503, path="/health", count=1))
    before = probes(replica)
    await replica.wait_for(lambda: probes(replica) >= before + 4, 5.0)
    assert health.up
    await router.until(lambda: health.state is State.READY)


@pytest.mark.parametrize("status", [401, 404, 405])
async def test_an_engine_without_a_health_check_is_alive(stage: Stage, status: int) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.STATUS, status=status, path="/health"))
    router = await stage.router(replica, watched=True, health_interval_s=0.1)
    await router.until(lambda: router.books(replica).health.state is State.READY)
    await replica.wait_for(lambda: probes(replica) >= 4, 5.0)
    assert router.books(replica).health.state is State.READY


async def test_a_slow_page_of_metrics_delays_no_probe(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.SLOW_METRICS, delay_s=30.0))
    router = await stage.router(replica, watched=True, health_interval_s=0.1)
    await replica.wait_for(lambda: probes(replica) >= 4, 5.0)
    assert router.books(replica).health.state is State.READY


async def test_a_probe_connects_anew(stage: Stage) -> None:
    """A connection that was kept would say nothing of whether the engine still accepts one."""
    replica = await stage.replica()
    await stage.router(replica, watched=True, health_interval_s=0.1)
    await replica.wait_for(lambda: probes(replica) >= 3, 5.0)
    connections = [arrival.connection for arrival in replica.requests if arrival.path == "/health"]
    assert len(set(connections)) == len(connections)


async def test_the_log_says_once_that_it_is_out_and_once_that_it_is_back(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, health_interval_s=0.1)
    health = router.books(replica).health
    await router.until(lambda: health.state is State.READY)

    def logged() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "warmroute.fleet"]

    replica.faults.set(Fault(FaultKind.REFUSE))
    await router.until(lambda: health.failures >= 2, "it was not probed again")
    name = f"replica {router.id_of(replica)} ({replica.url})"
    assert logged() == [f"{name} is out: refused"]
    replica.faults.clear()
    await router.until(lambda: len(logged()) > 1)
    assert logged()[1:] == [f"{name} is back"]


async def test_the_log_tells_of_an_ejection_that_no_probe_saw(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    resetting, good = await stage.replicas(2)
    router = await stage.router(resetting, good, watched=True, health_interval_s=60.0)
    await router.until(lambda: all(replica.health.state is State.READY for replica in router.house.fleet))
    resetting.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    client = await stage.client(router)
    for _ in range(2):
        assert (await client.ask(chat())).status == 200
    await router.until(lambda: any("is out: reset" in record.getMessage() for record in caplog.records))


async def test_an_ejected_replica_is_probed_soon_however_seldom_others_are(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, health_interval_s=60.0)
    health = router.books(replica).health
    await router.until(lambda: health.state is State.READY)
    health.failed(OutcomeKind.REFUSED, router.house.plane.clock())
    await router.until(lambda: health.up)


async def test_a_probe_that_is_late_says_nothing_of_a_replica_whose_bytes_come(stage: Stage) -> None:
    """Its HTTP server is busy, or this router was: not away."""
    busy, other = await stage.replicas(2, time_scale=1.0)
    busy.faults.set(Fault(FaultKind.HANG, path="/health"))
    router = await stage.router(busy, other, watched=True, health_interval_s=0.1, health_failures=1)
    client = await stage.client(router)
    health = router.books(busy).health
    await router.until(lambda: health.state is State.EJECTED, "nothing else was heard of it")
    busy.faults.clear()
    await router.until(lambda: health.up)
    other.faults.set(Fault(FaultKind.REFUSE))
    await router.until(lambda: not router.books(other).health.up)
    client.send(chat(stream=True, max_tokens=100_000, ignore_eos=True))
    answer = await client.head()
    assert answer.replica == router.id_of(busy)
    before = probes(busy)
    busy.faults.set(Fault(FaultKind.HANG, path="/health"))
    await busy.wait_for(lambda: probes(busy) >= before + 2, 20.0)
    assert health.state is State.READY
    client.leave()
