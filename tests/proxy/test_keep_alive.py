"""Connections are kept on both sides, and an engine's five seconds are never met."""

import asyncio

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat, request
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, answering

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


async def test_one_connection_to_the_engine_serves_one_request_after_the_other(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    client = await stage.client(router)
    for number in range(20):
        assert (await client.ask(chat(stream=bool(number % 2)))).status == 200
    other = await stage.ask(router, chat())
    assert other.status == 200
    assert {arrival.connection for arrival in replica.requests} == {1}


async def test_as_many_connections_as_requests_at_once_and_then_they_are_reused(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    clients = [await stage.client(router) for _ in range(10)]
    for _ in range(3):
        for client in clients:
            client.send(chat())
        for client in clients:
            assert (await client.answer()).status == 200
    assert replica.open_connections == 10
    assert max(arrival.connection for arrival in replica.requests) == 10


async def test_idle_connections_to_engines_are_closed_by_the_router_before_the_engine_does(stage: Stage) -> None:
    replica = await stage.replica(keep_alive_s=3600.0)
    router = await stage.router(replica, upstream_keepalive_s=0.2)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 200
    await replica.wait_for(lambda: replica.open_connections == 0, 5.0)
    assert (await client.ask(chat())).status == 200
    assert [arrival.connection for arrival in replica.requests] == [1, 2]


async def test_the_default_is_below_the_five_seconds_of_vllm(stage: Stage) -> None:
    router = await stage.router()
    assert router.house.plane.limits.upstream_idle_s < 5.0


async def test_a_connection_that_the_engine_closes_while_idle_is_not_used(stage: Stage) -> None:
    replica = await stage.replica(keep_alive_s=0.05)
    router = await stage.router(replica)
    client = await stage.client(router)
    for _ in range(3):
        assert (await client.ask(chat())).status == 200
        await replica.wait_for(lambda: replica.open_connections == 0, 5.0)
    assert [arrival.connection for arrival in replica.requests] == [1, 2, 3]
    assert router.records.failed == []


@pytest.mark.parametrize("abort", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_stale_connection_is_retried_at_once_on_the_same_replica_and_counts_for_nobody(
    stage: Stage, abort: bool, streaming: bool
) -> None:
    home, other = await stage.replicas(2)
    router = await stage.router(home, other)
    client = await stage.client(router)
    session = [("x-session-id", "s")]
    first = await client.ask(chat(headers=session))
    home = home if first.replica == router.id_of(home) else other
    home.faults.set(Fault(FaultKind.CLOSE_REUSED, count=1, abort=abort))
    again = await client.ask(chat(headers=session, stream=streaming))
    assert (again.status, again.replica) == (200, first.replica)
    assert not home.faults.active(), "the connection was indeed closed under the request"
    assert router.records.failed == []
    assert router.books(home).health.up
    assert router.records.finished[-1].attempts == 1


async def test_all_kept_connections_may_be_stale(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    clients = [await stage.client(router) for _ in range(5)]
    for client in clients:
        client.send(chat())
    for client in clients:
        await client.answer()
    replica.faults.set(Fault(FaultKind.CLOSE_REUSED, count=5))
    for client in clients:
        assert (await client.ask(chat())).status == 200
    assert router.records.failed == []


async def test_a_fresh_connection_that_is_reset_is_a_failure_not_stale(stage: Stage) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    router = await stage.router(bad, good)
    client = await stage.client(router)
    for _ in range(2):
        assert (await client.ask(chat())).replica == router.id_of(good)
    assert not router.books(bad).health.up


async def test_bytes_that_nobody_asked_for_end_an_idle_connection(stage: Stage) -> None:
    """An answer to nothing must not become the answer to the next request."""
    idle = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await upstream.peer(2)
        peer.send(OK)
        await idle.wait()
        if peer.serial == 1:
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")
        await peer.gone()

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    clients = [await stage.client(router) for _ in range(2)]
    for client in clients:
        client.send(chat())
    assert [(await client.answer()).body for client in clients] == [b"{}", b"{}"]
    idle.set()
    await upstream.peers[0].left.wait()
    assert not upstream.peers[1].left.is_set(), "it is not its age that ended it"


async def test_client_connections_are_kept_and_closed_when_asked(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    assert (await client.ask(chat())).header("connection") is None
    assert (await client.ask(request("/livez"))).header("connection") is None
    answer = await client.ask(chat(headers=[("Connection", "close")]))
    assert (answer.body, answer.header("connection")) == (b"{}", "close")
    await client.closed()


async def test_an_idle_client_connection_is_closed_after_the_keep_alive_time(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, keepalive_s=1)
    client = await stage.client(router)
    assert (await client.ask(chat())).body == b"{}"
    await client.closed()


async def test_a_long_answer_is_longer_than_the_keep_alive_time(stage: Stage) -> None:
    """Keep-alive counts idle time, not the time of an answer: there is no total limit on a generation."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await idle.closed()
        peer.send(b"0\r\n\r\n")

    upstream = await stage.upstream(script)
    router = await stage.router(upstream, keepalive_s=1)
    idle, busy = await stage.client(router), await stage.client(router)
    await idle.ask(request("/livez"))
    assert (await busy.ask(chat())).body == b"{}"
