"""Clients whose turns come at simulated times, some times as fast as life."""

import asyncio
from collections.abc import Coroutine, Iterable


class Paced:
    """The clock of all clients, and their tasks."""

    def __init__(self, time_scale: float) -> None:
        """`time_scale`: simulated seconds in a real one."""
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

    async def settle(self, seconds: float) -> int:
        """Wait for the answers that are under way, so long at the most; return how many clients were cut off."""
        _, left = await asyncio.wait(self.tasks, timeout=seconds)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return len(left)
