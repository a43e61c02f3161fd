"""Nothing listens at a replica's address: it is left at once, costs its clients nothing, and comes back by itself."""

import socket

from router.sim.faults import Fault, FaultKind
from tests.rig.client import DEADLINE_S, chat
from tests.rig.stage import Stage


async def test_one_failed_connection_to_one_dead_replica_costs_the_client_nothing(stage: Stage) -> None:
    dead, good = await stage.replicas(2)
    dead.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(dead, good)
    client = await stage.client(router)
    for stream in (False, True, False):
        answer = await client.ask(chat(stream=stream))
        assert (answer.status, answer.replica) == (200, router.id_of(good))
    assert router.records.failed == [(router.id_of(dead), "refused")], "only the first request met it"
    assert [record.attempts for record in router.records.finished] == [2, 1, 1]
    assert router.records.finished[0].decision is not None
    assert router.records.finished[0].decision.reason == "failover"


async def test_a_retry_never_returns_to_a_replica_that_failed(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    for replica in replicas:
        replica.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(*replicas)
    answer = await stage.ask(router, chat())
    assert answer.status == 503
    failed = [name for name, _ in router.records.failed]
    assert sorted(failed) == sorted(router.id_of(replica) for replica in replicas)


async def test_at_most_two_alternates_are_tried(stage: Stage) -> None:
    replicas = await stage.replicas(5)
    for replica in replicas:
        replica.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(*replicas)
    assert (await stage.ask(router, chat())).status == 503
    assert len(router.records.failed) == 3


async def test_no_alternate_is_tried_where_retries_are_off(stage: Stage) -> None:
    dead, good = await stage.replicas(2)
    dead.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(dead, good, max_retries=0)
    assert (await stage.ask(router, chat())).status == 503
    assert not good.requests
    assert (await stage.ask(router, chat())).status == 200


async def test_the_warm_home_that_refuses_is_out_before_affinity_is_looked_at(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas)
    text = "a long story, " * 200
    first = await stage.ask(router, chat(text))
    home = next(replica for replica in replicas if router.id_of(replica) == first.replica)
    home.faults.set(Fault(FaultKind.REFUSE))
    home.restart_cold()  # resets the kept connection, as a dying process does
    second = await stage.ask(router, chat(text))
    assert (second.status, second.reason) == (200, "failover")
    third = await stage.ask(router, chat(text))
    assert third.replica == second.replica, "the placement made on the way out is learnt"
    assert third.reason == "warm"
    assert router.records.finished[-1].attempts == 1


async def test_it_is_readmitted_by_the_first_answered_probe(stage: Stage) -> None:
    dead, good = await stage.replicas(2)
    router = await stage.router(dead, good, watched=True, scrape_interval_s=0.1)
    dead.faults.set(Fault(FaultKind.REFUSE))
    dead.restart_cold()
    await router.until(lambda: not router.books(dead).health.up, "the probe did not notice")
    client = await stage.client(router)
    for _ in range(4):
        assert (await client.ask(chat())).replica == router.id_of(good)
    assert router.records.failed == [], "no client met the dead replica"
    dead.faults.clear()
    await router.until(lambda: router.books(dead).health.up, "the probe did not readmit it")
    assert router.id_of(dead) in {(await client.ask(chat())).replica for _ in range(4)}


async def test_without_probes_it_is_readmitted_by_a_trial_after_a_short_back_off(stage: Stage) -> None:
    dead, good = await stage.replicas(2)
    dead.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(dead, good)
    client = await stage.client(router)
    assert (await client.ask(chat())).replica == router.id_of(good)
    dead.faults.clear()
    health = router.books(dead).health
    await router.until(lambda: health.available(router.house.plane.clock()), "no trial came due")
    for _ in range(4):
        assert (await client.ask(chat())).status == 200
    assert health.up
    assert dead.requests


async def test_a_trial_is_one_request_and_nobody_else_waits_for_it(stage: Stage) -> None:
    doubtful, good = await stage.replicas(2)
    doubtful.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, count=1))
    router = await stage.router(doubtful, good)
    client, trial = await stage.client(router), await stage.client(router)
    assert (await client.ask(chat())).replica == router.id_of(good)
    doubtful.faults.set(Fault(FaultKind.HANG))
    health = router.books(doubtful).health
    await router.until(lambda: health.available(router.house.plane.clock()))
    trial.send(chat())
    await doubtful.wait_for(lambda: len(doubtful.requests) == 2, DEADLINE_S)
    for _ in range(4):
        assert (await client.ask(chat())).replica == router.id_of(good)
    assert len(doubtful.requests) == 2


async def test_a_name_that_does_not_resolve_is_a_refusal(stage: Stage) -> None:
    good = await stage.replica()
    router = await stage.router("http://no-such-host.invalid:8000", good)
    client = await stage.client(router)
    for _ in range(2):
        answer = await client.ask(chat())
        assert (answer.status, answer.replica) == (200, router.id_of(good))


async def test_a_replica_that_accepts_no_connection_in_time_is_a_refusal(stage: Stage) -> None:
    """A full accept queue: the kernel drops what comes, as a host that is gone does."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        blockers = [socket.socket() for _ in range(8)]
        for blocker in blockers:
            blocker.setblocking(False)
            blocker.connect_ex(full.getsockname())
        good = await stage.replica()
        router = await stage.router(f"http://127.0.0.1:{full.getsockname()[1]}", good, connect_timeout_s=0.2)
        answer = await stage.ask(router, chat())
        assert (answer.status, answer.replica) == (200, router.id_of(good))
        assert [kind for _, kind in router.records.failed] == ["refused"]
        for blocker in blockers:
            blocker.close()
