"""200 clients that read a byte now and then, or nothing: phones on bad networks, a debugger, or an attack.

Each slows its own engine and nobody else: the router holds a bounded number of bytes for it and lets the rest wait in
the engine, other streams go on, and when such a client leaves, all that was held for it is free.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from router.proxy.exchange import Exchange
from tests.rig.client import Client, chat, chunked
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer

READERS = 200
CHUNK = b"data: " + b"x" * 8_184 + b"\n\n"
CHUNKS = 64
"""Half a megabyte to each."""

FRAMED_BYTES = len(chunked(CHUNK, last=b""))
BYTES_ONE_BY_ONE = 16
QUICK_EVENTS = 50
REST_BYTES = CHUNKS * FRAMED_BYTES + len(chunked()) - BYTES_ONE_BY_ONE

MOST_HELD_BYTES = 65_536 + 262_144
"""For one client: what uvicorn's flow control takes before it says stop, and the read in which that happened."""

KERNEL_BYTES = 16_384
"""Of the kernel's buffers, which it would make as large as 6 MB each: 1.4 GB for all of these."""


class Flood:
    """Sends as fast as it is let, from `go` on; the quick ones are short, and do not wait for it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.sent_chunks: dict[Peer, int] = {}
        """To the slow ones."""

    async def __call__(self, peer: Peer) -> None:
        peer.writer.transport.set_write_buffer_limits(high=0)
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        while True:
            is_quick = b"quick" in (await peer.request()).body
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            peer.send(chunked(b"data: 0\n\n", last=b""))
            await (self._quickly(peer) if is_quick else self._flood(peer))
            peer.send(chunked())

    async def _quickly(self, peer: Peer) -> None:
        for number in range(1, QUICK_EVENTS):
            peer.send(chunked(b"data: %d\n\n" % number, last=b""))
            await peer.writer.drain()

    async def _flood(self, peer: Peer) -> None:
        await self.go.wait()
        for number in range(CHUNKS):
            peer.send(chunked(CHUNK, last=b""))
            await peer.writer.drain()
            self.sent_chunks[peer] = number + 1


def exchanges(router: Router) -> list[Exchange]:
    return [exchange for exchange in router.house.plane.active if isinstance(exchange, Exchange)]


def let_the_kernel_hold_little(router: Router) -> None:
    for exchange in exchanges(router):
        assert exchange.attempt is not None
        assert exchange.attempt.connection is not None
        ends = ((exchange.client, socket.SO_SNDBUF), (exchange.attempt.connection, socket.SO_RCVBUF))
        for end, option in ends:
            end.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, KERNEL_BYTES)


def held_bytes(router: Router) -> list[int]:
    return [exchange.client.transport.get_write_buffer_size() for exchange in exchanges(router)]


async def slow_readers(stage: Stage, router: Router) -> list[Client]:
    options = {"receive_buffer_bytes": KERNEL_BYTES, "read_ahead_bytes": KERNEL_BYTES}
    clients = [await stage.client(router, **options) for _ in range(READERS)]
    for number, client in enumerate(clients):
        client.send(chat(f"slow {number}", stream=True))
    for client in clients:
        assert await client.event(await client.head()) == 0
    let_the_kernel_hold_little(router)
    return clients


async def test_each_slows_its_own_engine_and_nobody_else(stage: Stage) -> None:
    flood = Flood()
    upstreams = [await stage.upstream(flood) for _ in range(2)]
    router = await stage.router(*upstreams)
    clients = await slow_readers(stage, router)
    flood.go.set()
    await router.until(
        lambda: all(exchange.paused for exchange in exchanges(router)), "one still reads from its engine"
    )
    assert max(flood.sent_chunks.values()) < CHUNKS, "one was taken whole off its engine"
    assert len(held_bytes(router)) == READERS
    assert max(held_bytes(router)) <= MOST_HELD_BYTES

    for _ in range(BYTES_ONE_BY_ONE):  # a byte from time to time: bounded all along
        for client in clients:
            await client.reader.readexactly(1)
        quick = await stage.ask(router, chat("quick", stream=True))
        assert quick.events() == list(range(QUICK_EVENTS)), "somebody else's stream is not whole"
    assert max(held_bytes(router)) <= MOST_HELD_BYTES

    for client in clients[READERS // 2 :]:
        client.reset()
    await router.until(lambda: len(router.house.plane.active) == READERS // 2, "some that left are still there")
    rests = await asyncio.gather(*(client.reader.readexactly(REST_BYTES) for client in clients[: READERS // 2]))
    assert all(rest.endswith(b"\r\n0\r\n\r\n") and rest.count(b"data: ") == CHUNKS - 1 for rest in rests)
    await router.idle()
    outcomes = Counter(record.outcome for record in router.records.finished)
    assert outcomes == {"completed": READERS // 2 + BYTES_ONE_BY_ONE, "client-left": READERS // 2}
    assert all(replica.health.up for replica in router.house.fleet)


UNREAD = {
    "kept alive": chat(),
    "closed after it": chat(headers=[("connection", "close")]),
    "1.0": chat(version="1.0"),
    "garbage behind it": chat() + b"garbage\r\n\r\n",
}


@pytest.mark.parametrize("sent", UNREAD.values(), ids=UNREAD)
async def test_who_never_reads_the_end_of_an_answer_is_given_up_after_the_limit_on_silence(
    stage: Stage, sent: bytes
) -> None:
    """The engine is done and nobody waits for it any more: what is left is bytes and a connection."""
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 140001\r\n\r\n0")
        await go.wait()
        peer.send(b"x" * 140_000)

    router = await stage.router(await stage.upstream(script), silence_timeout_s=300.0)
    client = await stage.client(router, receive_buffer_bytes=KERNEL_BYTES, read_ahead_bytes=KERNEL_BYTES)
    client.send(sent)
    await client.head()
    (exchange,) = exchanges(router)
    downstream: Any = exchange.client
    let_the_kernel_hold_little(router)
    go.set()
    await router.until(lambda: not router.house.plane.active, "it is not done")
    assert downstream.transport.get_write_buffer_size() > 0, "there is no end left to be read"
    await router.until(lambda: downstream in router.house.plane.idle, "nobody looks after it")
    now = router.house.plane.clock() + 80.0
    downstream.close_if_idle(now)
    downstream.close_if_idle(now + 1.0)
    downstream.close_if_idle(now + 299.0)
    assert len(downstream.connections) == 1, "it has not had its time"
    downstream.close_if_idle(now + 302.0)
    await router.until(lambda: not downstream.connections, "it is held for ever")
    assert not router.house.plane.idle
