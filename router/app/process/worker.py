"""One of several router processes: what runs in it. Its parent is `router.app.process.workers`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import pickle
import select
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from router.app.house import House
from router.app.process.reload import take
from router.app.process.reloads import Order, Report
from router.app.process.serve import Sockets, StartError, serve, set_up_logging
from router.app.process.stopping import HURRY, Stop

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LOGGER = logging.getLogger("warmroute.reload")

READY = b"ready\n"
"""Said to the parent when it serves."""

RELOAD = b"reload\n"
"""Said to the parent when all are to reload."""

LENGTH_BYTES = 4
"""Before each order that the parent sends."""

_TOO_LATE = Report(error="the router is being stopped")


def main(clients: int, admin: int, link: int) -> int:
    """Run a worker on three inherited files; return its exit code."""
    sys.stderr = io.TextIOWrapper(WholeLines(2), errors="backslashreplace", line_buffering=True)
    sockets = Sockets(socket.socket(fileno=clients), socket.socket(fileno=admin))
    return uvloop.run(_work(sockets, socket.socket(fileno=link)))


async def _work(sockets: Sockets, end: socket.socket) -> int:
    stop = Stop()
    stop.listen()
    asyncio.get_running_loop().add_signal_handler(HURRY, stop.hurry)
    try:
        return await _serve(sockets, end, stop)
    finally:
        stop.deafen()


async def _serve(sockets: Sockets, end: socket.socket, stop: Stop) -> int:
    """Serve until the parent ends the link; return the exit code."""
    link = _Link(*await asyncio.open_unix_connection(sock=end), stop)
    order = await link.receive()
    if order is None or order.settings is None:
        return 0
    set_up_logging(order.settings.log_level)
    try:
        await serve(order.settings, sockets, partial(link.say, READY), stop, link.follow, order.origin)
    except StartError as error:
        await link.end(f"{error}\n".encode())
        return 2
    return 0


class _Link:
    """The worker's side of the link to its parent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stop: Stop) -> None:
        self._reader = reader
        self._writer = writer
        self._stop = stop
        self._asked: list[asyncio.Future[Report]] = []
        """Those who wait for the next order's report."""

    def say(self, words: bytes) -> None:
        """Say a line to the parent. One that is gone is noticed where its orders are read."""
        self._writer.write(words)

    async def end(self, words: bytes) -> None:
        """Say the last line."""
        self.say(words)
        self._writer.close()
        with contextlib.suppress(OSError):  # a parent that is gone does not want to know
            await self._writer.wait_closed()

    async def receive(self) -> Order | None:
        """Wait for an order; None when there will be no more."""
        try:
            length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
            order: Order = pickle.loads(await self._reader.readexactly(length))  # noqa: S301 - of its parent
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return order

    async def follow(self, house: House) -> None:
        """Do as ordered; the link's end is the order to stop, and comes from a parent that was killed, too."""
        house.reloads.ask = self._ask
        while (order := await self.receive()) is not None:
            report = _obey(house, order)
            house.reloads.note(report)
            self._answer(report)
        self._stop.ask()
        self._answer(_TOO_LATE)

    async def _ask(self) -> Report:
        """Have the parent send the settings of now to all workers."""
        if self._reader.at_eof():
            return _TOO_LATE
        answer: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self.say(RELOAD)
        return await answer

    def _answer(self, report: Report) -> None:
        asked, self._asked = self._asked, []
        for answer in asked:
            if not answer.done():  # as one is whose client has left
                answer.set_result(report)


def _obey(house: House, order: Order) -> Report:
    """Take the settings over; return the parent's report, or this worker's own trouble with them."""
    if order.settings is not None:
        house.recording.origin = order.origin
        report = take(house, order.settings)
        if report.error is not None:
            LOGGER.warning("reload: a worker's settings stay as they are: %s", report.error)
            return report
    return order.report


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
