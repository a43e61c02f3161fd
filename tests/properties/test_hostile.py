"""Whatever is sent, nothing breaks: no 5xx of the router's own, no count left over, no replica lost, others served."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings

from tests.rig.client import chat
from tests.rig.hostile import UPSTREAM_KEEPALIVE_S, Tally, attack, attack_all
from tests.rig.hostile_cases import KINDS, Case, case, cases
from tests.rig.innocent import innocents
from tests.rig.leaks import Held, leaked
from tests.rig.running import Router
from tests.rig.stage import Stage

COUNT = 150
"""A seed: with 4 seeds, and twice, 1,200 in some 10 s; `make hostile` sends 10,000."""
SEEDS = range(4)


def check(router: Router, tally: Tally) -> None:
    assert not tally.own_5xx, tally.own_5xx[0]
    for replica in router.house.fleet:
        assert replica.health.up
        assert (replica.ledger.streams, replica.ledger.uncached_tokens) == (0, 0)
    assert not router.house.plane.active


@pytest.mark.parametrize("seed", SEEDS)
async def test_hostile_requests_break_nothing(stage: Stage, seed: int) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas, upstream_keepalive_s=UPSTREAM_KEEPALIVE_S)
    before = Held.by(router)
    async with innocents(router) as beside:
        tally = await attack_all(stage, router, seed, COUNT, at_once=24)
    await router.idle()
    assert beside.hurt == []
    assert beside.served > 4
    assert await leaked(router, before) == 0
    check(router, tally)
    assert set(tally.by_kind) >= {kind.__name__.replace("_", " ") for kind in KINDS}
    assert all(replica.requests for replica in replicas), "nothing got through that was to get through"
    await router.until(lambda: not router.house.doorway.door.receiving, "half a request is still waited for")


@pytest.mark.parametrize("seed", SEEDS)
async def test_none_of_them_opens_a_door_that_wants_a_key(stage: Stage, seed: int) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, api_keys="alpha", key_concurrent_requests=1)
    tally = await attack_all(stage, router, seed, COUNT, at_once=24)
    assert not tally.own_5xx, tally.own_5xx[0]
    assert not replica.requests
    assert not any(used.running for used in router.house.doorway.door.allowances.values())


@given(cases)
@settings(max_examples=40, deadline=None)
def test_a_case_of_any_seed_breaks_nothing(sent: Case) -> None:
    async def play() -> None:
        async with contextlib.AsyncExitStack() as stack:
            stage = Stage(stack)
            router = await stage.router(await stage.replica())
            tally = Tally()
            with contextlib.suppress(ConnectionError):
                tally.add(sent, await attack(await stage.client(router), sent))
            assert (await stage.ask(router, chat())).status == 200
            await stage.clear()
            check(router, tally)

    asyncio.run(play())


def test_a_case_can_be_made_again_from_its_seed_and_number() -> None:
    for number in range(50):
        assert case(7, number) == case(7, number)
    assert len({case(7, number).kind for number in range(50)}) == len(KINDS)
