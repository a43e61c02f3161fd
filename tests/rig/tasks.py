"""Loops that a test starts beside a router, as `serve` starts them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Self

from tests.rig.client import DEADLINE_S


class Tasks:
    """Runs loops until they end or the test does."""

    def __init__(self) -> None:
        self.running: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    def spawn(self, loop: Awaitable[None]) -> None:
        """Start a loop."""
        self.running.add(asyncio.ensure_future(loop))

    async def ended(self) -> None:
        """Wait until all have ended by themselves, and well."""
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*self.running)
