"""One port: a uvicorn server whose end has a time limit and ends everybody in the same way."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection
from typing import Any

import uvicorn

from router.app.process.turns import Turns

LOOK_S = 0.05
"""How often it is looked whether the last connection is gone."""

FIRST_REQUEST_S = 1.0
"""How long a connection whose next request is on its way is waited for when the port has closed. A client that has just
connected does not take its end for that of an idle connection, and may not try again."""


class Listening(uvicorn.Server):
    """Call `open`, then, to end it, `refuse`, `emptied` and `abort`."""

    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, idle: Collection[object] = (), *, shared: bool = False
    ) -> None:
        """`idle`: connections that wait for their next request, beside those that uvicorn itself knows to.

        `shared`: other processes take connections from this socket, too.
        """
        super().__init__(config)
        self._socket = listening
        self._idle = idle
        self._shared = shared
        self._turns: Turns | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Serve from now on. Raises OSError or ValueError for TLS files that can't be used."""
        if not self.config.loaded:
            self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[] if self._shared else [self._socket])
        if self._shared:
            self._socket.listen(self.config.backlog)
            self._turns = Turns(self._socket, self._protocol, self.config.ssl)
            self._turns.open()
        self._ticking = asyncio.ensure_future(self.main_loop())  # which keeps the Date header right

    def _protocol(self) -> asyncio.Protocol:
        """Make what uvicorn makes for a connection that it has taken itself."""
        protocol: Any = self.config.http_protocol_class
        made: asyncio.Protocol = protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

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
        if self._turns is not None:
            self._turns.close()
            self._turns = None  # it may be called again, when there is no socket any more
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
