"""A replica dies, or the router stops, while a session is touched."""

from __future__ import annotations

from typing import Any

import pytest

from router.app.house import remove_replica
from router.core.touching.offers import Offer
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import CHAT, DEADLINE_S, request
from tests.rig.running import Router
from tests.rig.stage import Stage

SESSION: dict[str, Any] = {
    "model": "sim-model",
    "messages": [{"role": "user", "content": "tall tales of old sailors " * 400}],
    "max_tokens": 4,
}


async def touched(stage: Stage, watched: bool = False) -> tuple[Router, SimReplica]:
    """A router in front of a replica that has just been sent a touch, which it does not answer."""
    replica = await stage.replica()
    router = await stage.router(replica, watched=watched, touch=True, prefill_tokens_per_s=1_000)
    assert (await stage.ask(router, request(CHAT, SESSION))).status == 200
    replica.state.freeze()
    _begin(router, replica)
    await replica.wait_for(lambda: replica.engine.waiting + replica.engine.running == 1, DEADLINE_S)
    return router, replica


def _begin(router: Router, replica: SimReplica) -> None:
    toucher = router.house.toucher
    assert toucher is not None
    kept = next(toucher.touching.shelf.on(router.id_of(replica)))
    toucher.begin(Offer(kept, 1.0, 0.0, 1.0), router.house.plane.clock())


async def ended(router: Router) -> dict[str, int]:
    """Wait until no touch is under way; return what became of them."""
    toucher = router.house.toucher
    assert toucher is not None
    await router.until(lambda: not toucher.touching.under_way)
    touches: dict[str, int] = toucher.describe()["touches"]
    return touches


@pytest.mark.parametrize("kind", [FaultKind.REFUSE, FaultKind.RESET_BEFORE_FIRST_BYTE])
async def test_a_replica_that_can_t_be_reached_is_left_to_its_probes(stage: Stage, kind: FaultKind) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, touch=True, prefill_tokens_per_s=1_000)
    assert (await stage.ask(router, request(CHAT, SESSION))).status == 200
    state = router.books(replica).health.state
    replica.faults.set(Fault(kind))
    _begin(router, replica)
    assert await ended(router) == {"failed": 1}
    assert router.books(replica).health.state is state
    assert router.books(replica).mirror.held_bytes == 0


async def test_a_replica_that_dies_ends_its_touch(stage: Stage) -> None:
    router, replica = await touched(stage)
    replica.faults.set(Fault(FaultKind.RESTART_COLD))
    assert await ended(router) == {"failed": 1}
    assert router.books(replica).mirror.held_bytes == 0


async def test_a_replica_that_leaves_ends_its_touch_and_is_forgotten(stage: Stage) -> None:
    router, replica = await touched(stage)
    house = router.house
    remove_replica(house, router.id_of(replica))
    assert await ended(router) == {}
    await replica.wait_for(lambda: replica.engine.waiting + replica.engine.running == 0, DEADLINE_S)
    assert house.toucher is not None
    assert house.toucher.describe()["kept_bytes"] == 0


async def test_a_router_that_stops_ends_its_touch(stage: Stage) -> None:
    router, replica = await touched(stage, watched=True)
    await router.stop()
    assert await ended(router) == {"interrupted": 1}
    await replica.wait_for(lambda: replica.engine.waiting + replica.engine.running == 0, DEADLINE_S)
