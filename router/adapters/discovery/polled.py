"""A source that tells nothing by itself: it is looked at again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from router.adapters.cancellation import stop_if_cancelled
from router.adapters.discovery.trouble import Readability, Unreadable
from router.ports import Endpoint


class Reader(Protocol):
    """Reads a list of replicas."""

    async def read(self) -> list[Endpoint] | None:
        """Return the whole list, or None where it is known to be the last one. Raises Unreadable."""


class Polled:
    """Looks at a source at an interval. Implements `ports.Discovery`."""

    def __init__(self, name: str, reader: Reader, pause_s: float) -> None:
        """`pause_s`: between two looks."""
        self.name = name
        self._reader = reader
        self._pause_s = pause_s
        self._readability = Readability(name)

    async def endpoints(self) -> AsyncIterator[list[Endpoint]]:
        """Give the list at first and whenever it has changed, as `ports.Discovery` says."""
        told: list[Endpoint] | None = None
        while True:
            found = await self._look()
            stop_if_cancelled()
            if found is not None and found != told:
                told = found
                yield list(found)
            await asyncio.sleep(self._pause_s)

    async def _look(self) -> list[Endpoint] | None:
        try:
            found = await self._reader.read()
        except Unreadable as trouble:
            self._readability.failed(str(trouble))
            return None
        except Exception as fault:  # noqa: BLE001 - a mistake of a reader is logged, and ends no look
            self._readability.failed(f"{type(fault).__name__}: {fault}", fault)
            return None
        self._readability.well()
        return found
