"""All replicas are restarted, one after the other, each drained before, while chats go on: no request fails."""

from __future__ import annotations

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.load import Load, load
from tests.rig.running import Router
from tests.rig.stage import Stage


def chats_of(replica: SimReplica) -> int:
    return sum(arrival.method == "POST" for arrival in replica.requests)


async def restart(router: Router, replica: SimReplica, load: Load) -> None:
    """Do what an operator does."""
    admin, path = await router.admin(), f"/api/replicas/{router.id_of(replica)}"
    assert (await admin.post(f"{path}/drain")).status_code == 200
    await router.until(lambda: router.books(replica).ledger.streams == 0, "it is never idle")
    assert (await admin.get(path)).json()["ledger"]["streams"] == 0
    sent = chats_of(replica)
    replica.faults.set(Fault(FaultKind.REFUSE))
    replica.restart_cold()
    answered = len(load.answered)
    await router.until(lambda: len(load.answered) > answered + 10, "nobody else serves")
    assert chats_of(replica) == sent, "it was sent something while it was away"
    replica.faults.clear()
    assert (await admin.post(f"{path}/undrain")).json()["state"] == "joining"
    name = router.id_of(replica)
    await router.until(lambda: name in load.answered[answered:], "it is not used again")


async def test_no_request_fails_while_every_replica_is_restarted(stage: Stage) -> None:
    replicas = await stage.replicas(4)
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1, health_interval_s=0.1)
    await router.until(lambda: all(router.books(replica).models for replica in replicas))
    async with load(stage, router) as chats:
        for replica in replicas:
            await restart(router, replica, chats)
    assert all(router.books(replica).health.up for replica in replicas)
