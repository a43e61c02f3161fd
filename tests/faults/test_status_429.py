"""429: too many requests, by a gateway's count. It is for the client to slow down; for the router it is load."""

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat
from tests.rig.stage import Stage


async def test_it_comes_back_with_its_retry_after_and_is_not_retried(stage: Stage) -> None:
    limited, other = await stage.replicas(2)
    limited.faults.set(Fault(FaultKind.STATUS, status=429, message="slow down", retry_after_s=3))
    router = await stage.router(limited, other)
    answer = await stage.ask(router, chat())
    assert answer.status == 429
    assert answer.header("retry-after") == "3"
    assert answer.json()["error"]["message"] == "slow down"
    assert not other.requests


async def test_it_is_load_for_as_long_as_it_says_and_ejects_nobody(stage: Stage) -> None:
    limited, other = await stage.replicas(2)
    limited.faults.set(Fault(FaultKind.STATUS, status=429, retry_after_s=8))
    router = await stage.router(limited, other)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 429
    health, now = router.books(limited).health, router.house.plane.clock()
    assert health.up
    assert now + 6 < health.busy_until_s < now + 9
    for _ in range(3):
        assert (await client.ask(chat())).replica == router.id_of(other)


@pytest.mark.parametrize("status", [429, 503])
async def test_an_engine_that_pushes_back_without_saying_for_how_long_is_spoken_for(stage: Stage, status: int) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    replica.faults.set(Fault(FaultKind.STATUS, status=status))
    answer = await stage.ask(router, chat())
    assert (answer.status, answer.all("retry-after")) == (status, ["1"])
