"""A TCP proxy that a test makes slow, cuts and closes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Iterator
from typing import Self

_READ_BYTES = 65_536


class SlowLink:
    """Relays to a port of 127.0.0.1; `delay_s` is how long bytes take each way, for those sent from then on."""

    def __init__(self, target_port: int, delay_s: float = 0.0) -> None:
        self.target_port = target_port
        self.delay_s = delay_s
        self.port = 0
        self.accepted = 0
        """Connections so far."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        # They end with their connections. asyncio would report a cancelled one as an error of the server's.
        await asyncio.gather(*self._tasks)

    async def accept(self) -> None:
        """Listen, again on the same port after `refuse`."""
        if self._server is None:
            listening = socket.create_server(("127.0.0.1", self.port))
            self.port = listening.getsockname()[1]
            self._server = await asyncio.start_server(self._relay, sock=listening)

    def refuse(self) -> None:
        """Cut all connections and listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Drop all connections, with what is on its way."""
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # accepted as it stopped listening
            writer.transport.abort()
            return
        self.accepted += 1
        self._started(asyncio.current_task())
        with self._open(writer):
            try:
                target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            except OSError:
                return
            if writer.transport.is_closing():  # cut meanwhile
                target_writer.transport.abort()
                return
            with self._open(target_writer):
                ways = [self._one_way(reader, target_writer), self._one_way(target_reader, writer)]
                await asyncio.gather(*ways)

    def _started(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @contextlib.contextmanager
    def _open(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._writers.add(writer)
        self._opened(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def _opened(self, writer: asyncio.StreamWriter) -> None:
        """A connection is there: for a link that does more than delay."""

    def _deliver(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if not data:
            writer.close()
        elif not writer.is_closing():
            writer.write(data)

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay until the end; many parts may be on their way at once."""
        loop = asyncio.get_running_loop()
        on_their_way: deque[bytes] = deque()

        def arrive() -> None:
            # Whichever timer fires first: the bytes keep their order.
            self._deliver(on_their_way.popleft(), writer)

        due_s = 0.0
        data = b"unread"
        while data:
            try:
                data = await reader.read(_READ_BYTES)
            except OSError:
                data = b""
            on_their_way.append(data)
            due_s = max(due_s, loop.time() + self.delay_s)
            loop.call_at(due_s, arrive)
