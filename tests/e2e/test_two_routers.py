"""Routers on one Redis: what one has done the other knows at once, and both know again after a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from router.sim.replica import SimReplica
from tests.redis_server import running_redis
from tests.rig.client import chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import TALKS, AnyTalk


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


Start = Callable[..., Awaitable[list[Router]]]


@pytest.fixture
def together(stage: Stage, redis_url: str, request: pytest.FixtureRequest) -> Start:
    """Starts routers that share a fleet and a Redis, each test under a prefix of its own."""
    sharing: dict[str, Any] = {
        "redis": redis_url,
        "redis_prefix": "".join(letter for letter in request.node.name if letter.isalnum())[-60:],
        "redis_secret": "correct horse",
        # A deadline that a busy test machine keeps: what is known must be found, not found quickly.
        "redis_deadline_ms": 500,
    }

    async def start(count: int, replicas: list[SimReplica]) -> list[Router]:
        routers = [await stage.router(*replicas, **sharing) for _ in range(count)]
        for router in routers:
            await know_each_other(router, count)
        return routers

    return start


async def know_each_other(router: Router, count: int) -> None:
    store = router.house.store
    assert store is not None
    await router.until(lambda: store.state == "up", "Redis is not reached")
    await router.until(lambda: len(store.peers) >= count - 1, "no router is heard")


async def turn(stage: Stage, router: Router, talk: AnyTalk) -> Any:
    answer = await stage.ask(router, request(talk.path, {"model": "sim-model"} | talk.ask()))
    assert answer.status == 200, answer.body
    talk.take(answer)
    return answer


@pytest.mark.parametrize("kind", TALKS)
async def test_the_next_turn_is_warm_through_the_other_router(stage: Stage, together: Start, kind: str) -> None:
    routers = await together(2, await stage.replicas(4))
    talks = [TALKS[kind](number) for number in range(6)]
    homes: dict[int, str | None] = {}
    for number in range(5):
        for talk in talks:
            answer = await turn(stage, routers[number % 2], talk)
            if number:
                assert (answer.replica, answer.reason) == (homes[talk.number], "warm"), (number, talk.number)
            homes[talk.number] = answer.replica
    assert len(set(homes.values())) == 4, "the conversations are spread"


@pytest.mark.parametrize("kind", TALKS)
async def test_the_next_turn_is_warm_after_all_routers_restarted(stage: Stage, together: Start, kind: str) -> None:
    replicas = await stage.replicas(4)
    talks = [TALKS[kind](number) for number in range(6)]
    homes: dict[int, str | None] = {}
    for number in range(3):
        routers = await together(2, replicas)
        for talk in talks:
            answer = await turn(stage, routers[talk.number % 2], talk)
            if number:
                assert (answer.replica, answer.reason) == (homes[talk.number], "warm"), (number, talk.number)
            homes[talk.number] = answer.replica
        for router in routers:
            await router.idle()
            await router.stop()
    assert len(set(homes.values())) == 4


async def test_a_burst_through_three_routers_spreads(stage: Stage, together: Start) -> None:
    replicas = await stage.replicas(6)
    routers = await together(3, replicas)
    clients = [await stage.client(routers[number % 3]) for number in range(48)]
    for number, client in enumerate(clients):
        client.send(chat(f"{number} " * 400))
    chosen = Counter([(await client.answer()).replica for client in clients])
    assert max(chosen.values()) <= 14, chosen
