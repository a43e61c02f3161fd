"""The idle connections to one replica."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import NamedTuple

from router.proxy.upstream import UpstreamConnection
from router.proxy.vanished import keep_alive


class Address(NamedTuple):
    """Where a replica listens."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> bytes:
        """The Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.tls else 80
        return (host if self.port == default else f"{host}:{self.port}").encode()


class Pool:
    """Connections to one replica: the most recently used first, none that the engine may be about to close."""

    def __init__(
        self,
        address: Address,
        connect_timeout_s: float,
        idle_s: float,
        rank: int | None = None,
        vanish_timeout_s: float = 30.0,
    ) -> None:
        """`idle_s` must be shorter than the time after which the engine closes idle connections (vLLM: 5 s).

        `rank`: the data-parallel rank that requests ask the engine for. `vanish_timeout_s`: see `vanished.keep_alive`.
        """
        self.address = address
        self.authority = address.authority
        self.own_lines = b"" if rank is None else b"x-data-parallel-rank: %d\r\n" % rank
        """Header lines of every request sent there, in place of the client's."""
        self.connect_timeout_s = connect_timeout_s
        self.idle_s = idle_s
        self.vanish_timeout_s = vanish_timeout_s
        self._idle: list[UpstreamConnection] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> UpstreamConnection | None:
        """Return an idle connection, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and time.monotonic() - connection.idle_since_s < self.idle_s:
                return connection
            connection.transport.close()
        return None

    async def connect(self) -> UpstreamConnection:
        """Open a connection.

        Raises OSError when it is refused or the TLS handshake fails, TimeoutError after the connect time-out.
        """
        loop = asyncio.get_running_loop()
        host, port, tls = self.address
        async with asyncio.timeout(self.connect_timeout_s):
            transport, connection = await loop.create_connection(lambda: UpstreamConnection(self), host, port, ssl=tls)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            keep_alive(sock, self.vanish_timeout_s)
        return connection

    def put(self, connection: UpstreamConnection) -> None:
        """Keep an idle connection for the next request."""
        if self._closed:
            connection.transport.close()
            return
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)

    def discard(self, connection: UpstreamConnection) -> None:
        """Forget a closed connection."""
        if connection in self._idle:
            self._idle.remove(connection)

    def expire(self) -> None:
        """Close connections that have been idle for too long."""
        limit_s = time.monotonic() - self.idle_s
        while self._idle and self._idle[0].idle_since_s <= limit_s:
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        """Close all idle connections, and the others when their answers are complete."""
        self._closed = True
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()
