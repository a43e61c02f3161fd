"""Clients whose turns come at simulated times, some times as fast as life."""

import asyncio
import re
import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import cast

from benchmarks.load import Answer, Connection, Pool

REPLICA = re.compile(rb"\r\nx-warmroute-replica: *([^\r]*)\r\n")
RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)\r\n")


class Named(Connection):
    """Reads who answered, and when to come again."""

    replica_id, retry_after_s = "", 0.0

    def read_head(self) -> bool:
        head = self.buffer.partition(b"\r\n\r\n")[0].lower() + b"\r\n"
        if not super().read_head():
            return False
        replica, after = REPLICA.search(head), RETRY_AFTER.search(head)
        self.replica_id = replica[1].decode() if replica else ""
        self.retry_after_s = float(after[1]) if after else 0.0
        return True


class Line(Pool):
    """Kept-alive connections that read those heads."""

    async def ask(self, request: bytes, on_payload: Callable[[bytes], None]) -> tuple[Answer, Named]:
        while self.idle:
            connection = cast(Named, self.idle.pop())
            if connection.open:
                break
        else:
            connection = await self.connect()
        answer = await connection.start(request, on_payload)
        if connection.open:
            self.idle.append(connection)
        return answer, connection

    async def connect(self) -> Named:
        sock = await connected(self.port)
        _, connection = await asyncio.get_running_loop().create_connection(lambda: Named(sock), sock=sock)
        return connection


async def connected(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Paced:
    """The clock of all clients, and their tasks."""

    def __init__(self, port: int, time_scale: float) -> None:
        """`time_scale`: simulated seconds in a real one."""
        self.line = Line(port)
        self.time_scale = time_scale
        self.loop = asyncio.get_running_loop()
        self.began_s = self.loop.time()
        self.late_s: list[float] = []
        """By how much each turn came too late, simulated: a busy machine."""
        self.tasks: list[asyncio.Task[None]] = []

    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return (self.loop.time() - self.began_s) * self.time_scale

    def begin(self, clients: Iterable[Coroutine[None, None, None]]) -> None:
        self.began_s = self.loop.time()
        self.tasks = [asyncio.create_task(client) for client in clients]

    async def sleep_until(self, simulated_s: float) -> None:
        await asyncio.sleep(max(0.0, simulated_s - self.now_s()) / self.time_scale)
        self.late_s.append(self.now_s() - simulated_s)

    async def drain(self, seconds: float) -> int:
        """Wait for the answers that are under way, so long at the most; return how many clients were cut off."""
        _, left = await asyncio.wait(self.tasks, timeout=seconds)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.line.close()
        return len(left)
