"""The redis-server that tests use is a real one: it answers, runs Lua, keeps nothing and ends."""

from collections.abc import Iterator

import pytest
import redis
import redis.asyncio

from tests.redis_server import running_redis

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
