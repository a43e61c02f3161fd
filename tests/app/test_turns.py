"""Two takers of one listening socket, as two workers are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import cast

import pytest
import trustme

from router.app.process.turns import Turns


class Taken(asyncio.Protocol):
    """Notes that it was made, and says so."""

    def __init__(self, taken: list[asyncio.Transport], wanted: asyncio.Semaphore) -> None:
        self.taken, self.wanted = taken, wanted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.taken.append(cast(asyncio.Transport, transport))
        self.wanted.release()


class Taker:
    """Its own descriptor of the socket, as another process has."""

    def __init__(self, listening: socket.socket, wanted: asyncio.Semaphore, tls: ssl.SSLContext | None = None) -> None:
        self.listening = listening.dup()
        self.taken: list[asyncio.Transport] = []
        self.turns = Turns(self.listening, lambda: Taken(self.taken, wanted), tls)

    def close(self) -> None:
        self.turns.close()
        self.listening.close()
        for transport in self.taken:
            transport.abort()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as one:
        yield one


@pytest.fixture
async def wanted() -> asyncio.Semaphore:
    return asyncio.Semaphore(0)


@pytest.fixture
async def takers(listening: socket.socket, wanted: asyncio.Semaphore) -> AsyncIterator[list[Taker]]:
    two = [Taker(listening, wanted) for _ in range(2)]
    yield two
    for taker in two:
        taker.close()


@contextlib.contextmanager
def connected(listening: socket.socket, count: int) -> Iterator[list[socket.socket]]:
    """So many clients whose connections wait to be taken."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(listening.getsockname(), 5)) for _ in range(count)]


async def come(wanted: asyncio.Semaphore, count: int) -> None:
    async with asyncio.timeout(10):
        for _ in range(count):
            await wanted.acquire()


async def test_a_burst_is_shared(listening: socket.socket, takers: list[Taker], wanted: asyncio.Semaphore) -> None:
    with connected(listening, 20):
        for taker in takers:
            taker.turns.open()
        await come(wanted, 20)

    assert [len(taker.taken) for taker in takers] == [10, 10]


async def test_what_is_taken_does_not_wait_for_more_to_send(
    listening: socket.socket, takers: list[Taker], wanted: asyncio.Semaphore
) -> None:
    with connected(listening, 1):
        takers[0].turns.open()
        await come(wanted, 1)
        taken = takers[0].taken[0].get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_one_that_is_closed_leaves_all_to_the_other(
    listening: socket.socket, takers: list[Taker], wanted: asyncio.Semaphore
) -> None:
    for taker in takers:
        taker.turns.open()
    takers[0].turns.close()
    with connected(listening, 4):
        await come(wanted, 4)

    assert [len(taker.taken) for taker in takers] == [0, 4]


async def test_it_waits_while_there_are_no_files(
    listening: socket.socket, takers: list[Taker], wanted: asyncio.Semaphore, caplog: pytest.LogCaptureFixture
) -> None:
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connected(listening, 1):
        takers[0].turns.open()
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            async with asyncio.timeout(10):
                while not caplog.records:  # noqa: ASYNC110 - a line of the log tells nobody
                    await asyncio.sleep(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert [record.getMessage() for record in caplog.records] == [
            "no connection is taken for 0.1 s: Too many open files"
        ]
        assert not takers[0].taken
        await come(wanted, 1)


async def test_a_handshake_that_is_none_is_no_error(listening: socket.socket, wanted: asyncio.Semaphore) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    taker = Taker(listening, wanted, tls)
    taker.turns.open()
    host, port = listening.getsockname()

    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.read()
    writer.close()
    _, writer = await asyncio.open_connection(host, port, ssl=trusting)
    await come(wanted, 1)
    writer.close()
    taker.close()

    assert not errors
