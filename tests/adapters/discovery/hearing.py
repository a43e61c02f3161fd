"""Listens to a source as the router does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from router.ports import Discovery, Endpoint
from tests.rig.client import DEADLINE_S


class Heard:
    """The lists that a source has given so far."""

    def __init__(self) -> None:
        self.lists: list[list[Endpoint]] = []
        self._more = asyncio.Condition()

    async def add(self, endpoints: list[Endpoint]) -> None:
        async with self._more:
            self.lists.append(endpoints)
            self._more.notify_all()

    @property
    def urls(self) -> list[str]:
        """Of the last list."""
        return [endpoint.url for endpoint in self.lists[-1]]

    async def until(self, holds: Callable[[list[Endpoint]], bool]) -> list[Endpoint]:
        """Wait for a list, and return it."""
        async with asyncio.timeout(DEADLINE_S), self._more:
            await self._more.wait_for(lambda: bool(self.lists) and holds(self.lists[-1]))
            return self.lists[-1]

    async def count(self, number: int) -> list[Endpoint]:
        """Wait until so many lists have come, and return the last one."""
        return await self.until(lambda _: len(self.lists) >= number)

    async def these(self, *urls: str) -> list[Endpoint]:
        """Wait for a list of these replicas."""
        return await self.until(lambda found: sorted(each.url for each in found) == sorted(urls))


@contextlib.asynccontextmanager
async def hearing(source: Discovery) -> AsyncIterator[Heard]:
    heard = Heard()

    async def listen() -> None:
        async with contextlib.aclosing(source.endpoints()) as lists:  # type: ignore[type-var]
            async for endpoints in lists:
                await heard.add(endpoints)
        raise AssertionError("a source must never end")

    task = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError), outcome


class Log(logging.Handler):
    """What `warmroute.discovery` logs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._more.set()

    @property
    def warnings(self) -> list[str]:
        return self.of(logging.WARNING)

    def of(self, level: int) -> list[str]:
        return [record.getMessage() for record in self.records if record.levelno == level]

    async def until(self, number: int, level: int = logging.WARNING) -> list[str]:
        """Wait until so many texts were logged."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.of(level)) < number:
                self._more.clear()
                await self._more.wait()
        return self.of(level)
