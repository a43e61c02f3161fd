"""Connections of a port that several workers have, taken one at a time.

An event loop of its own accord takes all that wait. So the worker that wakes first gets a whole burst, and has it as
long as its clients keep their connections: those that open theirs at once, as pools do, fill one worker and leave the
other idle. Of 32 to 256 connections opened at once the busier of two workers had 52 to 90 % of the work, now 50 to 57 %
where each had more than a dozen requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable

LOGGER = logging.getLogger("warmroute.workers")

SHORT_S = 0.1
"""How long none is taken when the system has no file or memory for one: what waits is not lost meanwhile."""


class Turns:
    """Takes connections from a socket while other processes do, too. Belongs to the event loop it is opened in."""

    def __init__(
        self, listening: socket.socket, protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        """`protocol` makes one for each connection; `tls` is None without TLS."""
        self._listening = listening
        self._protocol = protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Take connections from now on."""
        self._listening.setblocking(False)
        self._wait()

    def close(self) -> None:
        """Take none any more. Those that are connecting go on."""
        self._loop.remove_reader(self._listening)
        if self._again is not None:
            self._again.cancel()

    def _wait(self) -> None:
        self._again = None
        self._loop.add_reader(self._listening, self._take)

    def _take(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return  # another worker was quicker, or the client has left
        except OSError as error:
            LOGGER.warning("no connection is taken for %g s: %s", SHORT_S, error.strerror)
            self._loop.remove_reader(self._listening)
            self._again = self._loop.call_later(SHORT_S, self._wait)
            return
        connection.setblocking(False)
        connecting = self._loop.create_task(self._connect(connection))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)
        # Where workers share a core the others would not wake before this one has taken all.
        os.sched_yield()

    async def _connect(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # the client has left, or its handshake was none
            await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
