"""An upstream that plays a script on a real socket, for what no engine would send and for bytes to be exact about."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from tests.rig.client import DEADLINE_S


@dataclass
class Received:
    """One request as it came off the wire."""

    raw_head: bytes
    method: str
    target: str
    headers: list[tuple[str, str]]
    """Names as sent."""
    body: bytes = b""

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None


class Peer:
    """One accepted connection, seen from the engine's side."""

    def __init__(self, serial: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serial = serial
        """Counts connections from 1."""
        self.reader = reader
        self.writer = writer
        self.requests: list[Received] = []
        self.left = asyncio.Event()
        """Set by `gone`: the router has closed the connection."""

    async def request(self) -> Received:
        """Read one request, which must have a length or no body."""
        raw = await self._read(self.reader.readuntil(b"\r\n\r\n"))
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        method, target, version = first.split(" ")
        assert version == "HTTP/1.1"
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        received = Received(raw, method, target, headers)
        assert received.header("transfer-encoding") is None
        length = received.header("content-length")
        if length is not None:
            received.body = await self._read(self.reader.readexactly(int(length)))
        self.requests.append(received)
        return received

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def gone(self) -> bytes:
        """Wait until the router closes the connection; return what it sent before."""
        data = b""
        try:
            while part := await self._read(self.reader.read(65_536)):
                data += part
        except ConnectionResetError:
            pass
        self.left.set()
        return data

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def _read(self, reading: Awaitable[bytes]) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await reading


Script = Callable[[Peer], Awaitable[None]]


def answering(*answers: bytes) -> Script:
    """A script that gives these answers to a connection's requests in order, and then the last one again and again."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(answers[min(len(peer.requests), len(answers)) - 1])

    return script


class ScriptedUpstream:
    """Accepts connections and plays the script on each."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals = asyncio.Condition()
        self.peers: list[Peer] = []
        self.failure: BaseException | None = None
        """Why a script ended early, other than by the router's leaving."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Received]:
        """All requests, by connection."""
        return [received for peer in self.peers for received in peer.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=64 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.failure is not None:
            raise self.failure

    async def peer(self, serial: int = 1) -> Peer:
        """Wait for the connection of this number."""
        async with asyncio.timeout(DEADLINE_S), self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.peers) >= serial)
        return self.peers[serial - 1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(len(self.peers) + 1, reader, writer)
        async with self._arrivals:
            self.peers.append(peer)
            self._arrivals.notify_all()
        try:
            await self._script(peer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the router left, or the test is over
        except Exception as failure:
            self.failure = failure
