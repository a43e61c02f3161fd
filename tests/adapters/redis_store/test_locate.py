"""The server that takes writes is found: behind a URL, by sentinels and in a cluster, also after it has moved."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import redis
import trustme
from redis.asyncio import Redis
from redis.crc import key_slot

from router.adapters.redis_store.address import parse
from router.adapters.redis_store.locate import locate
from tests.redis_server import (
    AGREE_DEADLINE_S,
    LOOK_S,
    SERVICE,
    Cluster,
    RedisServer,
    Sentinels,
    running_cluster,
    running_sentinels,
)
from tests.rig.client import DEADLINE_S

KEY = "{warmroute}:news"
TIMEOUT_S = 0.5
SECRET = "gull-and-buoy"


@contextlib.asynccontextmanager
async def located(url: str, key: str = KEY, timeout_s: float = TIMEOUT_S) -> AsyncIterator[Redis]:
    client = await locate(parse(url), key, timeout_s)
    try:
        yield client
    finally:
        await client.aclose()


async def written_to(url: str, key: str = KEY) -> int:
    """Port of the server that took a write."""
    async with located(url, key) as client:
        await client.set(key, b"here")
        return int((await client.config_get("port"))["port"] or 0)


async def come_true(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(AGREE_DEADLINE_S):
        while True:
            if await holds():
                return
            await asyncio.sleep(LOOK_S)


async def nobody_is_connected(servers: list[RedisServer]) -> bool:
    """Whether they have no client of ours."""
    lists = [server.client().client_list() for server in servers]
    return not any(client["name"] == "warmroute" for clients in lists for client in clients)


# Standalone


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def test_the_server_of_the_url(server: RedisServer) -> None:
    assert await written_to(server.url) == server.port


async def test_it_answers_bytes_in_its_database_under_a_name(server: RedisServer) -> None:
    async with located(server.url.replace("/0", "/3")) as client:
        await client.set("there", "value")
        assert await client.get("there") == b"value"
        mine = await client.client_list()
        assert [(c["name"], c["db"], c.get("resp", "2")) for c in mine if c["cmd"].startswith("client")] == [
            ("warmroute", "3", "2")
        ]
    assert server.ask("GET", "there") is None


async def test_connecting_sends_nothing_but_its_name(server: RedisServer) -> None:
    server.ask("CONFIG", "RESETSTAT")
    async with located(server.url) as client:
        await client.ping()
        commands = await client.info("commandstats")
    # CONFIG RESETSTAT itself is counted after it has reset, and INFO after it has answered.
    assert set(commands) - {"cmdstat_config"} == {"cmdstat_client", "cmdstat_ping"}
    assert commands["cmdstat_client"]["calls"] == 1


async def test_a_socket_in_the_file_system(tmp_path: Path) -> None:
    with RedisServer("--unixsocket", str(tmp_path / "redis.sock")) as server:
        assert await written_to(f"unix://{tmp_path}/redis.sock") == server.port


async def test_nothing_is_tried_twice() -> None:
    with RedisServer() as server:
        async with located(server.url) as client:
            await client.ping()
            before = server.ask("INFO", "stats")["total_connections_received"]
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            with pytest.raises(redis.ConnectionError):
                await client.ping()
            after = server.ask("INFO", "stats")["total_connections_received"]
            assert after - before == 2, "the two that looked"


async def test_a_server_that_is_down() -> None:
    with RedisServer() as server:
        async with located(server.url) as client:
            server.kill()
            with pytest.raises(redis.ConnectionError):
                await client.ping()
        async with located(server.url) as client:
            with pytest.raises(redis.ConnectionError):
                await client.ping()


async def test_a_server_that_is_stopped() -> None:
    with RedisServer() as server:
        server.stop()
        async with located(server.url, timeout_s=0.1) as client, asyncio.timeout(DEADLINE_S):
            with pytest.raises(redis.TimeoutError):
                await client.ping()
        server.go_on()
        assert await written_to(server.url) == server.port


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a password, and a user with another one."""
    with RedisServer("--requirepass", SECRET, "--user", *f"me on >{SECRET}2 ~* &* +@all".split()) as server:
        yield server


@pytest.mark.parametrize("credentials", [f":{SECRET}", f"default:{SECRET}", f"me:{SECRET}2"])
async def test_a_password(guarded: RedisServer, credentials: str) -> None:
    assert await written_to(f"redis://{credentials}@127.0.0.1:{guarded.port}") == guarded.port


@pytest.mark.parametrize("credentials", [f":{SECRET}2", f"me:{SECRET}"])
async def test_a_wrong_password(guarded: RedisServer, credentials: str) -> None:
    async with located(f"redis://{credentials}@127.0.0.1:{guarded.port}") as client:
        with pytest.raises(redis.AuthenticationError) as caught:
            await client.ping()
    assert SECRET not in str(caught.value)


async def test_no_password(guarded: RedisServer) -> None:
    async with located(guarded.url) as client:
        with pytest.raises(redis.RedisError, match="(?i)authentication required"):
            await client.ping()


# TLS. The redis-server of the tests may be built without it, so something else ends it in front of one.


@pytest.fixture
async def tls_port(server: RedisServer, tmp_path: Path) -> AsyncIterator[int]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain_reader, plain_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(one_way(reader, plain_writer), one_way(plain_reader, writer))

    async def one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()

    ends = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    yield ends.sockets[0].getsockname()[1]
    ends.close()


async def test_tls_with_a_trusted_certificate(tls_port: int, tmp_path: Path, server: RedisServer) -> None:
    assert await written_to(f"rediss://localhost:{tls_port}?ssl_ca_certs={tmp_path}/ca.pem") == server.port


async def test_tls_without_looking_at_the_certificate(tls_port: int, server: RedisServer) -> None:
    assert await written_to(f"rediss://127.0.0.1:{tls_port}?ssl_cert_reqs=none") == server.port


@pytest.mark.parametrize("url", ["rediss://localhost:{}", "rediss://127.0.0.1:{}?ssl_ca_certs={}/ca.pem"])
async def test_tls_with_another_certificate(tls_port: int, tmp_path: Path, url: str) -> None:
    """Nobody whom we trust issued it; or it is another host's."""
    async with located(url.format(tls_port, tmp_path)) as client:
        with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
            await client.ping()


async def test_tls_without_the_file_of_certificates(server: RedisServer, tmp_path: Path) -> None:
    async with located(f"rediss://127.0.0.1:{server.port}?ssl_ca_certs={tmp_path}/none.pem") as client:
        with pytest.raises(redis.RedisError):
            await client.ping()


# Sentinels


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    """For tests that change nothing for good."""
    with running_sentinels() as sentinels:
        yield sentinels


async def test_the_master_that_the_sentinels_name(sentinels: Sentinels) -> None:
    assert await written_to(sentinels.url) == sentinels.master.port


async def test_one_sentinel_that_answers_is_enough(sentinels: Sentinels) -> None:
    stopped, killed, _ = sentinels.sentinels
    stopped.stop()
    killed.kill()
    try:
        assert await written_to(sentinels.url) == sentinels.master.port
    finally:
        stopped.go_on()
        killed.start()


async def test_no_sentinel_answers(sentinels: Sentinels) -> None:
    for sentinel in sentinels.sentinels:
        sentinel.stop()
    try:
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(redis.TimeoutError):
                await locate(parse(sentinels.url), KEY, 0.1)
    finally:
        for sentinel in sentinels.sentinels:
            sentinel.go_on()


async def test_a_service_that_the_sentinels_do_not_know(sentinels: Sentinels) -> None:
    with pytest.raises(redis.ConnectionError, match="know no master named 'another'"):
        await locate(parse(sentinels.url.replace(SERVICE, "another")), KEY, TIMEOUT_S)


async def test_no_connection_to_a_sentinel_is_left(sentinels: Sentinels) -> None:
    assert await written_to(sentinels.url) == sentinels.master.port
    await come_true(lambda: nobody_is_connected(sentinels.sentinels))


async def test_sentinels_with_a_password_of_their_own(server: RedisServer) -> None:
    with RedisServer(sentinel=f"requirepass {SECRET}\nsentinel monitor other 127.0.0.1 {server.port} 1\n") as sentinel:
        place = f"redis+sentinel://127.0.0.1:{sentinel.port}/other"
        await come_true(lambda: sentinel_is_ready(sentinel))
        assert await written_to(f"{place}?sentinel_password={SECRET}") == server.port
        with pytest.raises(redis.AuthenticationError):
            await locate(parse(f"{place}?sentinel_password=wrong"), KEY, TIMEOUT_S)


async def sentinel_is_ready(sentinel: RedisServer) -> bool:
    master = sentinel.client(password=SECRET).execute_command("SENTINEL", "MASTER", "other")
    return dict(zip(master[::2], master[1::2], strict=True))["flags"] == "master"


async def test_a_failover() -> None:
    with running_sentinels() as sentinels:
        assert await written_to(sentinels.url) == sentinels.master.port
        sentinels.master.kill()
        await asyncio.to_thread(sentinels.wait_for_failover)
        assert await written_to(sentinels.url) == sentinels.replicas[0].port

        sentinels.master.start()  # alone, it still takes itself for the master
        assert await written_to(sentinels.url) == sentinels.replicas[0].port


async def test_a_master_that_is_down_and_not_replaced_yet() -> None:
    with running_sentinels(replicas=0) as sentinels:
        sentinels.master.kill()
        await come_true(lambda: is_held_for_down(sentinels))


async def is_held_for_down(sentinels: Sentinels) -> bool:
    try:
        await (await locate(parse(sentinels.url), KEY, TIMEOUT_S)).aclose()
    except redis.ConnectionError as error:
        return "for down" in str(error)
    return False


# Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("prefix", ["a", "b", "c", "d", "e"])
async def test_the_master_of_the_slot(cluster: Cluster, prefix: str) -> None:
    key = f"{{{prefix}}}:news"
    expected = cluster.master_of(key_slot(key.encode()))
    assert await written_to(cluster.url, key) == expected.port


def test_these_prefixes_lie_on_all_masters(cluster: Cluster) -> None:
    ports = {cluster.master_of(key_slot(prefix)).port for prefix in (b"a", b"b", b"c", b"d", b"e")}
    assert len(ports) == 3


async def test_one_node_that_answers_is_enough(cluster: Cluster) -> None:
    owner = cluster.master_of(key_slot(KEY.encode()))
    silent = next(master for master in cluster.masters if master is not owner)
    silent.stop()
    try:
        assert await written_to(cluster.url) == owner.port
    finally:
        silent.go_on()


async def test_no_node_answers(cluster: Cluster) -> None:
    with RedisServer() as gone:
        pass
    with pytest.raises(redis.ConnectionError):
        await locate(parse(f"redis+cluster://127.0.0.1:{gone.port}"), KEY, TIMEOUT_S)


async def test_a_server_that_is_no_cluster(server: RedisServer) -> None:
    with pytest.raises(redis.ResponseError, match="cluster support disabled"):
        await locate(parse(server.url.replace("redis:", "redis+cluster:").removesuffix("/0")), KEY, TIMEOUT_S)


async def test_a_slot_that_nobody_has() -> None:
    message = "no node of the cluster has the slot"
    with RedisServer("--cluster-enabled", "yes") as node, pytest.raises(redis.ConnectionError, match=message):
        await locate(parse(f"redis+cluster://127.0.0.1:{node.port}"), KEY, TIMEOUT_S)


async def test_no_connection_to_a_node_is_left(cluster: Cluster) -> None:
    assert await written_to(cluster.url)
    await come_true(lambda: nobody_is_connected(cluster.masters))


async def test_a_slot_that_moves() -> None:
    with running_cluster() as cluster:
        slot = key_slot(KEY.encode())
        before = cluster.master_of(slot)
        after = next(master for master in cluster.masters if master is not before)
        async with located(cluster.url) as client:
            await client.ping()
            cluster.move(slot, after)
            with pytest.raises(redis.exceptions.MovedError):
                await client.set(KEY, b"")
        await come_true(lambda: all_name_the_owner(cluster, after))
        assert await written_to(cluster.url) == after.port


async def all_name_the_owner(cluster: Cluster, owner: RedisServer) -> bool:
    """Whether also the third node has heard of it on the bus."""
    urls = [f"redis+cluster://127.0.0.1:{master.port}" for master in cluster.masters]
    clients = [await locate(parse(url), KEY, TIMEOUT_S) for url in urls]
    for client in clients:
        await client.aclose()
    return {client.connection_pool.connection_kwargs["port"] for client in clients} == {owner.port}


async def test_a_master_that_dies_is_replaced() -> None:
    with running_cluster(replicas=True) as cluster:
        master = cluster.master_of(key_slot(KEY.encode()))
        master.kill()
        await come_true(lambda: takes_over(cluster, cluster.replica_of(master)))


async def takes_over(cluster: Cluster, replica: RedisServer) -> bool:
    with contextlib.suppress(redis.RedisError, OSError):
        return await written_to(cluster.url) == replica.port
    return False
