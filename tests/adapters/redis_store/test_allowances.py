"""A key's limits hold for all routers of one Redis together, and for each alone while it is away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from router.adapters.client_keys import digest_of
from router.core.allowance import Allowance
from tests.redis_server import RedisServer, running_redis
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.sharing import store_of
from tests.rig.stage import Stage

KEY = [("api-key", "alpha")]
NAME = f"key-{digest_of('alpha').hex()[:8]}"


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


def used(router: Router) -> Allowance:
    return router.house.doorway.door.allowances[NAME]


async def start(stage: Stage, url: str, prefix: str, time_scale: float = 1_000.0, **settings: Any) -> list[Router]:
    replica = await stage.replica(time_scale=time_scale)
    shared: dict[str, Any] = {"redis": url, "redis_prefix": prefix, "redis_deadline_ms": 500, "api_keys": "alpha"}
    return [await stage.router(replica, **shared, **settings) for _ in range(2)]


def told(router: Router) -> tuple[int, int, int]:
    """What a router has heard of the others."""
    now, there = router.house.plane.clock(), used(router).elsewhere.values()
    return (
        sum(other.requests.total(now) for other in there),
        sum(other.tokens.total(now) for other in there),
        sum(other.running for other in there),
    )


@pytest.mark.parametrize("secret", [None, "correct horse"])
async def test_requests_and_tokens_are_summed(stage: Stage, redis_url: str, secret: str | None) -> None:
    one, other = await start(stage, redis_url, f"sums{secret is None}", redis_secret=secret, key_requests_per_minute=4)
    for router in (one, one, other):
        assert (await stage.ask(router, chat(headers=KEY))).status == 200
    await one.until(lambda: told(one)[0] == 1)
    await other.until(lambda: told(other)[0] == 2)
    assert told(other)[1] == used(one).tokens.total(one.house.plane.clock()) > 0
    assert (await stage.ask(other, chat(headers=KEY))).header("x-ratelimit-remaining-requests") == "0"
    await one.until(lambda: told(one)[0] == 2)
    for router in (one, other):
        answer = await stage.ask(router, chat(headers=KEY))
        assert answer.status == 429
        assert 50 <= int(answer.header("retry-after") or 0) <= 61


async def test_requests_under_way_are_summed_and_go_with_their_router(stage: Stage, redis_url: str) -> None:
    one, other = await start(stage, redis_url, "running", time_scale=0.5, key_concurrent_requests=1)
    client = await stage.client(one)
    await client.ask_head(chat(headers=KEY, stream=True, max_tokens=4000, ignore_eos=True))
    await other.until(lambda: told(other)[2] == 1)
    assert (await stage.ask(other, chat(headers=KEY))).status == 429
    client.leave()
    await other.until(lambda: told(other)[2] == 0)
    assert (await stage.ask(other, chat(headers=KEY, max_tokens=1))).status == 200


async def test_without_redis_each_router_goes_by_its_own_counts(stage: Stage) -> None:
    with RedisServer() as server:
        one, other = await start(stage, server.url, "away", key_requests_per_minute=3)
        assert (await stage.ask(one, chat(headers=KEY))).status == 200
        await other.until(lambda: told(other)[0] == 1)
        server.stop()
        statuses = [(await stage.ask(other, chat(headers=KEY))).status for _ in range(4)]
        assert statuses == [200, 200, 429, 429], "what was heard last still counts"
        assert [(await stage.ask(one, chat(headers=KEY))).status for _ in range(3)] == [200, 200, 429]


async def test_no_name_of_a_key_stands_in_redis(stage: Stage, redis_url: str) -> None:
    one, other = await start(stage, redis_url, "names", key_requests_per_minute=4)
    assert (await stage.ask(one, chat(headers=KEY))).status == 200
    await other.until(lambda: told(other)[0] == 1)
    client: Any = store_of(one).link.client
    values = [await client.get(name) for name in await client.keys("{names}:1:a:*")]
    assert values
    assert not any(NAME.encode() in value or NAME[4:].encode() in value for value in values)
