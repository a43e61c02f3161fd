"""A router that dies with requests in flight: its share of the load is gone within seconds, and nothing stays held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from router.adapters.redis_store.store import RedisStore
from router.core.replica import IDLE
from router.sim.faults import Fault, FaultKind
from tests.redis_server import running_redis
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.stage import Stage


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


def store(router: Router) -> RedisStore:
    assert router.house.store is not None
    return router.house.store


async def test_its_share_is_gone_and_its_blocks_are_released(stage: Stage, redis_url: str) -> None:
    replicas = await stage.replicas(2)
    for replica in replicas:
        replica.faults.set(Fault(FaultKind.HANG))
    sharing: dict[str, Any] = {"redis": redis_url, "redis_deadline_ms": 500}
    dying, staying = [await stage.router(*replicas, **sharing) for _ in range(2)]
    await staying.until(lambda: len(store(staying).peers) == 1 and len(store(dying).peers) == 1)
    clients = [await stage.client(dying) for _ in range(6)]
    for number, client in enumerate(clients):
        client.send(chat(f"{number} " * 400, stream=True))
    books = [staying.books(replica) for replica in replicas]
    await staying.until(lambda: sum(book.peer_load.streams for book in books) == 6, "the load is not heard of")
    assert all(book.peer_load.uncached_tokens > 0 and book.mirror.held_bytes > 0 for book in books)
    dying.die()
    await staying.until(lambda: all(book.peer_load == IDLE for book in books), "a dead router's load stays")
    assert len(store(staying).peers) == 0
    assert [book.mirror.held_bytes for book in books] == [0, 0]


async def test_one_that_leaves_in_good_order_is_forgotten_at_once(stage: Stage, redis_url: str) -> None:
    replicas = await stage.replicas(2)
    leaving, staying = [await stage.router(*replicas, redis=redis_url, redis_deadline_ms=500) for _ in range(2)]
    await staying.until(lambda: len(store(staying).peers) == 1)
    heard = next(iter(store(staying).peers))[1]
    await leaving.stop()
    await staying.until(lambda: len(store(staying).peers) == 0)
    assert staying.house.plane.clock() - heard.heard_s < 3.0, "it was not its silence that told"
