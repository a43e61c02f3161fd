import asyncio

import pytest
from redis.asyncio import Redis

from router.adapters.redis_store.closing import close
from tests.redis_server import RedisServer


async def connected(client: Redis, connections: int) -> None:
    await asyncio.gather(*(client.ping() for _ in range(connections)))


async def test_all_connections_are_closed_though_the_task_is_cancelled() -> None:
    with RedisServer() as server:
        client = Redis.from_url(server.url)
        await connected(client, 5)
        pool = client.connection_pool
        open_ones = [connection for connection in pool._available_connections if connection.is_connected]
        assert len(open_ones) == 5
        closing = asyncio.ensure_future(close([client]))
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not any(connection.is_connected for connection in open_ones)


async def test_a_client_that_can_not_be_closed_keeps_no_other_open() -> None:
    class Broken(Redis):
        async def aclose(self, close_connection_pool: bool | None = None) -> None:
            await super().aclose(close_connection_pool)
            raise ConnectionError("it is gone")

    with RedisServer() as server:
        clients = [Broken.from_url(server.url), Redis.from_url(server.url)]
        for client in clients:
            await connected(client, 1)
        await close(clients)
        assert not any(c.is_connected for client in clients for c in client.connection_pool._available_connections)
