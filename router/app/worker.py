"""One of several router processes: what runs in it. Its parent is `router.app.workers`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pickle
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING

import uvloop

from router.app.serve import StartError, serve, set_up_logging
from router.app.settings.model import Settings

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READY = b"ready\n"
"""Said to the parent when it serves."""

LENGTH_BYTES = 4
"""Before the settings that the parent sends."""


def main(client: int, admin: int, link: int) -> int:
    """Run a worker on three inherited files; return its exit code."""
    sys.stderr = io.TextIOWrapper(WholeLines(2), errors="backslashreplace", line_buffering=True)
    settings = _receive(link)
    if settings is None:
        return 0
    set_up_logging(settings.log_level)
    try:
        uvloop.run(_work(settings, socket.socket(fileno=client), socket.socket(fileno=admin), link))
    except StartError as error:
        _say(link, f"{error}\n".encode())
        return 2
    return 0


def _receive(link: int) -> Settings | None:
    """Return the settings that the parent sends; None when it is gone."""
    with open(link, "rb", closefd=False) as down:
        length = int.from_bytes(down.read(LENGTH_BYTES), "big")
        data = down.read(length)
    if not data or len(data) < length:
        return None
    settings: Settings = pickle.loads(data)
    return settings


def _say(link: int, words: bytes) -> None:
    with contextlib.suppress(OSError):  # a parent that is gone is noticed where its end is read
        os.write(link, words)


async def _work(settings: Settings, client_socket: socket.socket, admin_socket: socket.socket, link: int) -> None:
    """Serve until the parent ends the link. Nothing comes on it any more but its end."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(link)
        signal.raise_signal(signal.SIGTERM)

    loop.add_reader(link, stop)
    await serve(settings, client_socket, admin_socket, lambda: _say(link, READY))


class WholeLines(io.BufferedIOBase):
    """Writes to a file that others write to as well, without cutting a line where another's begins.

    What is written ends with a line's end. A pipe keeps PIPE_BUF bytes together (4,096 on Linux), so no write has more,
    unless one line alone is longer.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, buffer: ReadableBuffer, /) -> int:
        """Write all of it. Raises OSError when the file is gone."""
        data = bytes(buffer)
        start = 0
        while start < len(data):
            end = _end_of_lines(data, start)
            start += os.write(self._descriptor, data[start:end])
        return len(data)


def _end_of_lines(data: bytes, start: int) -> int:
    """Return where the lines end that are written together from `start` on: at least one line."""
    if len(data) - start <= select.PIPE_BUF:
        return len(data)
    end = data.rfind(b"\n", start, start + select.PIPE_BUF)
    if end < 0:
        end = data.find(b"\n", start)
    return len(data) if end < 0 else end + 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
