"""Orders in a real redis-server: routers agree on them, whatever happens to the value that they share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from router.adapters.redis_store.address import parse
from router.adapters.redis_store.options import Options
from router.adapters.redis_store.ordering import AGREE_SCRIPT, pack, unpack
from router.adapters.redis_store.sealing import Keyring
from router.adapters.redis_store.state import State
from router.adapters.redis_store.store import RedisStore
from router.app.roster.engines import keep_running
from router.core.orders import KEEP_MS, Kind, Listed, Order, Orders
from tests.core.worlds import fleet_of
from tests.redis_server import RedisServer, running_redis
from tests.rig.sharing import eventually

NOW_MS = int(time.time() * 1000)
HERE = Listed("http://gpu-1:8000", weight=2.0)
SECRET = "correct horse battery"
PREFIX = "ordering"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@pytest.fixture
def server(url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(url) as client:
        client.flushall()
        yield client


def store_of(url: str, name: str, secret: str | None = None) -> RedisStore:
    options = Options(parse(url), prefix=PREFIX, secret=secret, deadline_s=0.5)
    return RedisStore(fleet_of(2), options, name, asyncio.get_running_loop().time)


@contextlib.asynccontextmanager
async def running(*stores: RedisStore) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(keep_running("sharing", loop)) for store in stores for loop in store.loops()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in stores:
            await store.close()


async def until(holds: Callable[[], bool]) -> None:
    async def look() -> bool:
        return holds()

    await eventually(look, "it did not come true")


def give(store: RedisStore, kind: Kind = Kind.REPLICA, name: str = "a", holds: bool = True) -> None:
    store.ordering.orders.give(kind, name, holds, NOW_MS, HERE if kind is Kind.REPLICA and holds else None)
    store.ordering.given()


def listed(*stores: RedisStore) -> list[dict[str, Listed]]:
    return [store.ordering.orders.listed() for store in stores]


# The script


def call(server: redis.Redis, known: str, new: bytes = b"") -> Any:
    return server.execute_command("EVAL", AGREE_SCRIPT, 1, "key", known, new, 60)


NOTHING = "da39a3ee5e6b4b0d3255bfef95601890afd80709"


def test_a_value_is_replaced_by_who_knows_it_alone(server: redis.Redis) -> None:
    assert call(server, NOTHING) is None
    assert not server.exists("key")
    assert call(server, NOTHING, b"one") is None
    assert call(server, NOTHING, b"two") == b"one"
    assert server.get("key") == b"one"
    known = "fe05bcdcdc4928012781a5f1a2a77cbb5398e106"
    assert call(server, known) is None
    assert call(server, known, b"two") is None
    assert server.get("key") == b"two"
    left_s: Any = server.ttl("key")
    assert 0 < left_s <= 60


def test_what_is_no_text_is_taken_for_nothing_and_replaced(server: redis.Redis) -> None:
    server.hset("key", "a", "b")
    assert call(server, "0" * 40) == b""
    assert call(server, NOTHING, b"one") is None
    assert server.get("key") == b"one"


# What stands there


@pytest.mark.parametrize("secret", [None, SECRET])
def test_orders_are_read_as_they_were_written(secret: str | None) -> None:
    orders = Orders()
    orders.give(Kind.REPLICA, "a", True, NOW_MS, HERE)
    orders.give(Kind.DRAIN, "r-1", True, NOW_MS)
    value = pack(orders.all.values(), Keyring(secret))
    assert unpack(value, Keyring(secret)) == list(orders.all.values())
    assert (b"gpu-1" in value) is (secret is None)
    assert unpack(value, Keyring("another secret")) == []


@pytest.mark.parametrize("secret", [None, SECRET])
@pytest.mark.parametrize("value", [b"", b"\x00", b"\xc1", b"hello world, this is no order", b"\x93\x01\x02\x03"])
def test_garbage_is_no_order(value: bytes, secret: str | None) -> None:
    assert unpack(value, Keyring(secret)) == []


FORGED: list[dict[str, Any]] = [
    {"url": "http://gpu-1"}, {"url": "http://gpu-1:bad"}, {"url": "x"}, {"weight": float("nan")}, {"weight": 0.0},
]  # fmt: skip


def test_orders_that_no_router_gives_are_passed_over() -> None:
    good = Order(Kind.REPLICA, "a", NOW_MS, True, HERE)
    bad = [Order(Kind.REPLICA, "b", NOW_MS, True, msgspec.structs.replace(HERE, **changed)) for changed in FORGED]
    bad.append(Order(Kind.REPLICA, "c", NOW_MS, True))
    assert unpack(msgspec.msgpack.encode([*bad, good]), Keyring(None)) == [good]


# Between routers


@pytest.mark.parametrize("secret", [None, SECRET])
async def test_what_one_orders_holds_at_the_other(url: str, server: redis.Redis, secret: str | None) -> None:
    here, there = store_of(url, "here", secret), store_of(url, "there", secret)
    heard = asyncio.Event()
    there.ordering.changed = heard.set
    async with running(here, there):
        give(here)
        await asyncio.wait_for(heard.wait(), 10)
        assert listed(there) == [{"a": HERE}]
        give(there, holds=False)
        await until(lambda: listed(here, there) == [{}, {}])
        give(here, Kind.DRAIN, "r0")
        await until(lambda: there.ordering.orders.drained("r0"))
    (key,) = [key for key in server.scan_iter() if b":o:" in key]
    left_s: Any = server.ttl(key)
    assert left_s <= KEEP_MS / 1000
    late = store_of(url, "late", secret)
    async with running(late):
        await late.tried()
        assert late.ordering.orders.drained("r0"), "a start waits for the orders"


async def test_orders_that_are_given_at_once_both_hold(url: str, server: redis.Redis) -> None:
    stores = [store_of(url, f"router-{number}") for number in range(3)]
    async with running(*stores):
        await until(lambda: all(store.state is State.UP for store in stores))
        for number, store in enumerate(stores):
            for step in range(5):
                store.ordering.orders.give(Kind.DRAIN, f"r-{number}-{step}", True, NOW_MS)
                store.ordering.given()
        await until(lambda: all(len(store.ordering.orders) == 15 for store in stores))


async def test_without_orders_nothing_stands_in_redis(url: str, server: redis.Redis) -> None:
    store = store_of(url, "alone")
    async with running(store):
        await store.tried()
        assert store.ordering.agreed.is_set()
        assert not list(server.scan_iter())


async def test_routers_with_another_secret_leave_each_other_alone(url: str, server: redis.Redis) -> None:
    stores = [store_of(url, "here", SECRET), store_of(url, "there", "another secret"), store_of(url, "open")]
    async with running(*stores):
        for number, store in enumerate(stores):
            give(store, name=f"of-{number}")
        keys: Callable[[], list[bytes]] = lambda: [key for key in server.scan_iter() if b":o:" in key]  # noqa: E731
        await until(lambda: len(keys()) == 3)
        assert listed(*stores) == [{f"of-{number}": HERE} for number in range(3)]


@pytest.mark.parametrize("value", [None, b"garbage", {"a": "hash"}])
async def test_a_redis_that_was_emptied_or_tampered_with_ends_no_order(
    url: str, server: redis.Redis, value: Any
) -> None:
    stores = here, there = store_of(url, "here"), store_of(url, "there")
    async with running(*stores):
        give(here)
        await until(lambda: listed(there) == [{"a": HERE}])
        server.flushall()
        if isinstance(value, dict):
            server.hset(here.names.orders, mapping=value)
        elif value is not None:
            server.set(here.names.orders, value)
        late = store_of(url, "late")
        async with running(late):
            await until(lambda: listed(late) == [{"a": HERE}])
        assert listed(*stores) == [{"a": HERE}, {"a": HERE}]


async def test_what_is_ordered_while_redis_is_away_is_written_when_it_is_back() -> None:
    with RedisServer() as server:
        here, there = store_of(server.url, "here"), store_of(server.url, "there")
        async with running(here, there):
            await until(lambda: here.state is there.state is State.UP)
            server.kill()
            await until(lambda: here.state is there.state is State.DOWN)
            give(here, name="a")
            give(there, name="b")
            assert listed(here, there) == [{"a": HERE}, {"b": HERE}], "each alone"
            server.start()
            await until(lambda: listed(here, there) == [{"a": HERE, "b": HERE}] * 2)


async def test_what_is_ordered_last_before_the_end_is_told(url: str, server: redis.Redis) -> None:
    store = store_of(url, "here")
    async with running(store):
        await until(store.ordering.agreed.is_set)
        store.ordering.orders.give(Kind.DRAIN, "r0", True, NOW_MS)
    value: Any = server.get(store.names.orders)
    assert [order.name for order in unpack(value, Keyring(None))] == ["r0"]


async def test_a_redis_that_refuses_orders_is_of_use_for_the_rest(
    url: str, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    rights = "on >password resetkeys resetchannels ~{ordering}:1:t:* ~{ordering}:1:h:* &{ordering}:* +@all"
    server.execute_command("ACL", "SETUSER", "limited", *rights.split())
    caplog.set_level(logging.INFO, "warmroute.redis")
    store = store_of(url.replace("redis://", "redis://limited:password@"), "here")
    try:
        async with running(store):
            await until(lambda: store.state is State.UP and store.ordering._failing)
            before = store.counts.commands
            give(store)
            await until(lambda: store.counts.commands > before + 3)
            assert store.state is State.UP
    finally:
        server.execute_command("ACL", "DELUSER", "limited")
    lines = [record.getMessage() for record in caplog.records if "orders" in record.getMessage()]
    assert len(lines) == 1
