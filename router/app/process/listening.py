"""One port: a uvicorn server whose end has a time limit and ends everybody in the same way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection
from typing import Any

import uvicorn

LOOK_S = 0.05
"""How often it is looked whether the last connection is gone."""

FIRST_REQUEST_S = 1.0
"""How long a connection whose next request is on its way is waited for when the port has closed. A client that has just
connected does not take its end for that of an idle connection, and may not try again."""


class Listening(uvicorn.Server):
    """Call `open`, then, to end it, `refuse`, `emptied` and `abort`."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, idle: Collection[object] = ()) -> None:
        """`idle`: connections that wait for their next request, beside those that uvicorn itself knows to."""
        super().__init__(config)
        self._socket = listening
        self._idle = idle
        self._ticking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Serve from now on. Raises OSError or ValueError for TLS files that can't be used."""
        if not self.config.loaded:
            self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[self._socket])
        self._ticking = asyncio.ensure_future(self.main_loop())  # which keeps the Date header right

    @property
    def _connections(self) -> list[Any]:
        return list(self.server_state.connections)

    def end_after_these(self) -> None:
        """Let each answer that is under way be the last on its connection."""
        for connection in self._connections:
            if _is_busy(connection):
                connection.shutdown()

    def refuse(self) -> None:
        """Take no connection any more."""
        for server in self.servers if self.started else ():
            server.close()
        self._socket.close()

    async def emptied(self) -> None:
        """Close connections as they fall idle, until none is left."""
        loop = asyncio.get_running_loop()
        patient_until_s = loop.time() + FIRST_REQUEST_S
        while connections := self._connections:
            for connection in connections:
                if loop.time() >= patient_until_s or not self._is_awaited(connection):
                    connection.shutdown()
            await asyncio.sleep(LOOK_S)

    def _is_awaited(self, connection: Any) -> bool:
        """Tell whether a request is on its way: the first one, or one of which a part has come."""
        if connection.cycle is None:
            return True
        idle = connection in self._idle or connection.timeout_keep_alive_task is not None
        return not idle and not _is_busy(connection)

    async def abort(self, last_bytes_s: float) -> None:
        """Close all connections; reset those whose client has not taken what was written after so many seconds."""
        for connection in self._connections:
            connection.transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.emptied(), last_bytes_s)
        for connection in self._connections:
            connection.transport.abort()
        if self._ticking is not None:
            self._ticking.cancel()


def _is_busy(connection: Any) -> bool:
    """Tell whether a request is under way, or waits behind one."""
    return connection.cycle is not None and not connection.cycle.response_complete
