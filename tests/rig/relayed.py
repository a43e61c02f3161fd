"""A port that stands for one elsewhere: what arrives at a listening socket goes on through another network's socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Self

_BYTES = 65_536


class Relay:
    """Relays connections until it is left. One that can't be made elsewhere is closed, as Docker's proxy does."""

    def __init__(self, listening: socket.socket, connect: Callable[[], Awaitable[socket.socket]]) -> None:
        self._listening = listening
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, sock=self._listening)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._relay(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            await _end(writer)
            self._tasks.discard(task)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(sock=await self._connect())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass(reader, far_writer))
                group.create_task(_pass(far_reader, writer))
        except* OSError:  # one side is gone without a word: so is the other
            pass
        finally:
            await _end(far_writer)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_BYTES):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
