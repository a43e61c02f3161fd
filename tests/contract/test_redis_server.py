"""The redis-servers that tests use are real: they answer, run Lua, keep nothing, can be killed and stopped, and end."""

import asyncio
from collections.abc import Iterator

import pytest
import redis
import redis.asyncio

from tests.redis_server import RedisServer, running_cluster, running_redis, running_sentinels
from tests.rig.slow_link import SlowLink

ADD_ONCE = "return redis.call('SETNX', KEYS[1], ARGV[1]) + 0"


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


async def test_it_answers(redis_url: str) -> None:
    async with redis.asyncio.from_url(redis_url) as client:
        assert await client.ping()


async def test_it_runs_lua_atomically(redis_url: str) -> None:
    async with redis.asyncio.from_url(redis_url) as client:
        add_once = client.register_script(ADD_ONCE)
        assert [await add_once(keys=["home"], args=[value]) for value in ("a", "b")] == [1, 0]
        assert await client.get("home") == b"a"


async def test_it_writes_nothing_to_disk(redis_url: str) -> None:
    async with redis.asyncio.from_url(redis_url) as client:
        assert await client.config_get("save") == {"save": ""}
        assert await client.config_get("appendonly") == {"appendonly": "no"}


async def test_it_takes_more_arguments() -> None:
    with running_redis("--requirepass", "secret") as url:
        with_password = url.replace("redis://", "redis://:secret@")
        async with redis.asyncio.from_url(with_password) as client:
            assert await client.ping()


def test_it_is_gone_at_the_end() -> None:
    with running_redis() as url:
        client = redis.Redis.from_url(url, retry=None)
        assert client.ping()
    with pytest.raises(redis.ConnectionError):
        client.ping()
    client.close()


def test_a_killed_one_starts_again_empty_on_its_port() -> None:
    with RedisServer() as server:
        client = server.client()
        client.set("key", "value")
        port, process_id = server.port, client.info("server")["process_id"]
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert server.port == port
        assert client.get("key") is None
        assert client.info("server")["process_id"] != process_id


def test_a_stopped_one_accepts_and_does_not_answer_until_it_goes_on() -> None:
    with RedisServer() as server:
        server.stop()
        with pytest.raises(redis.TimeoutError):
            server.client(socket_timeout=0.1).ping()
        server.go_on()
        assert server.client().ping()


def test_a_stopped_one_is_gone_at_the_end() -> None:
    with RedisServer() as server:
        server.stop()
    with pytest.raises(redis.ConnectionError):
        server.ask("PING")


def test_one_that_does_not_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="colour"), RedisServer("--colour", "red"):
        pass


def test_sentinels_replace_a_killed_master() -> None:
    with running_sentinels(replicas=2) as sentinels:
        sentinels.master.client().set("key", "value")
        assert sentinels.master_port() == sentinels.master.port
        assert sentinels.master.client().wait(2, 5_000) == 2
        sentinels.master.kill()
        sentinels.wait_for_failover()
        new = next(replica for replica in sentinels.replicas if replica.port == sentinels.master_port())
        assert new.client().get("key") == "value"
        assert new.client().set("key", "another")


def test_a_cluster_has_all_slots() -> None:
    with running_cluster() as cluster:
        for slot in (0, 5460, 5461, 10_921, 10_922, 16_383):
            owner = cluster.master_of(slot)
            ranges = owner.ask("CLUSTER", "SLOTS")
            ports = [master[1] for first, last, master in ranges if first <= slot <= last]
            assert ports == [owner.port]


async def test_a_link_that_is_slow_cut_and_closed(redis_url: str) -> None:
    port = int(redis_url.removesuffix("/0").rpartition(":")[2])
    async with SlowLink(port) as link, redis.asyncio.from_url(link.url, retry=None) as client:
        await client.set("key", b"x" * 300_000)
        assert await client.get("key") == b"x" * 300_000
        link.delay_s = 1.0
        slow = asyncio.ensure_future(client.ping())
        async with redis.asyncio.from_url(redis_url, retry=None) as direct:
            assert await direct.ping()
        assert not slow.done(), "asked first, answered last"
        assert await slow
        link.delay_s = 0
        before = link.accepted
        link.cut()
        with pytest.raises(redis.ConnectionError):
            await client.ping()
        assert await client.ping()
        assert link.accepted == before + 1
        link.refuse()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                await client.ping()
        await link.accept()
        assert await client.ping()
