"""What arrived at a replica, kept for inspection, and waiting for something to become true without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

Header = tuple[bytes, bytes]


@dataclass(slots=True, eq=False)
class Arrival:
    """One request as it came off the wire, and how it ended. Times are the event loop's."""

    serial: int
    """Counts requests of this replica from 1."""
    connection: int
    """Serial number of the connection, from 1."""
    method: str
    target: str
    """As sent, query included."""
    headers: list[Header]
    """As sent, order and case included."""
    arrived_s: float
    body: bytes = b""
    """Decoded from chunks; what has come so far while `complete` is false."""
    complete: bool = False
    status: int | None = None
    """Status of the answer; None while there is none."""
    chunks_sent: int = 0
    """Events of a stream; 1 for an answer of known length."""
    ended: bool = False
    """The whole answer was handed to the connection."""
    left_early: bool = False
    """The client closed the connection before `ended`."""
    left_s: float | None = None
    _named: dict[bytes, bytes] = field(init=False, default_factory=dict)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def header(self, name: bytes) -> bytes | None:
        """Return the first header of this lower-case name."""
        if not self._named:
            for known, value in reversed(self.headers):
                self._named[known.lower()] = value
        return self._named.get(name)


class Changes:
    """Wakes whoever waits for something about a replica to become true; told of every change."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def tell(self) -> None:
        """Something changed: look at what is waited for."""
        if not self._waiting:
            return
        for predicate, future in self._waiting:
            if not future.done() and predicate() and not future.done():  # a look may itself tell of a change
                future.set_result(None)
        self._waiting = [waiting for waiting in self._waiting if not waiting[1].done()]

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> None:
        """Return once the predicate holds; it is looked at now and at every change.

        Raises:
            TimeoutError: it did not hold within `timeout_s`.
        """
        if predicate():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (predicate, future)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
