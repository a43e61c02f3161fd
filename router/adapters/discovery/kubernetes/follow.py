"""List, then watch: what there is of a kind of objects, kept up to date."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx
import msgspec

from router.adapters.discovery.kubernetes.api import Api, Expired
from router.adapters.discovery.kubernetes.objects import Event, Status, Thing

LOGGER = logging.getLogger("warmroute.discovery")

T = TypeVar("T", bound=Thing)

SHORT_S = 1.0
"""A watch that ends sooner without a word has failed, even if it ends as it should."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is done."""

    relist_s: float
    """Seconds between two lists while all is well: what a watch has missed is noticed then."""
    watch_s: float = 60.0
    """Seconds that the server is asked to keep a watch up: one whose connection is dead is noticed soon after."""
    margin_s: float = 10.0
    """Seconds that it may take longer."""


class Held(Generic[T]):
    """The objects as they are known now, by name: no two of a kind have the same at a time."""

    def __init__(self, objects: list[T], version: str, kind: type[T]) -> None:
        self._objects = {each.metadata.name: each for each in objects}
        self._kind = kind
        self.version = version
        """Of the last list or event: where a watch goes on."""

    def all(self) -> list[T]:
        """Return the objects."""
        return list(self._objects.values())

    def take_in(self, line: bytes) -> bool:
        """Take in an event; return whether it changed anything.

        Raises Expired where the server says so, ValueError for any other error of it, and for what is no event.
        """
        event = msgspec.json.decode(line, type=Event)
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            if status.code == httpx.codes.GONE:
                raise Expired
            raise ValueError(status.message or f"error {status.code}")
        if event.type == "BOOKMARK":
            self.version = msgspec.json.decode(event.object, type=Thing).metadata.resource_version
            return False
        self._change(event.type, msgspec.json.decode(event.object, type=self._kind))
        return True

    def _change(self, change: str, thing: T) -> None:
        meta = thing.metadata
        self.version = meta.resource_version
        if change != "DELETED":
            self._objects[meta.name] = thing
        elif meta.name in self._objects and self._objects[meta.name].metadata.uid == meta.uid:
            del self._objects[meta.name]


async def follow(api: Api[T], kind: type[T], pace: Pace, watching: Callable[[], None]) -> AsyncGenerator[list[T]]:
    """Give all objects, at first and after each change, until it is time to list again: then it ends.

    `watching` is told when a watch has begun. Raises Unreadable where the server answers neither list nor watch.
    """
    clock = asyncio.get_running_loop().time
    relist_at_s = clock() + pace.relist_s
    held = Held(*await api.listed(), kind)
    yield held.all()
    while (left_s := relist_at_s - clock()) > 0:
        timeout_s = max(1, math.ceil(min(left_s, pace.watch_s)))
        began_s, version = clock(), held.version
        try:
            async with api.watch(held.version, timeout_s, timeout_s + pace.margin_s) as lines:
                watching()
                while (line := await _next(lines, began_s + timeout_s + pace.margin_s)) is not None:
                    if held.take_in(line):
                        yield held.all()
        except (Expired, httpx.HTTPError, TimeoutError, ValueError) as error:
            LOGGER.debug("a watch ended: %s", error or type(error).__name__)
            return
        if clock() - began_s < SHORT_S and held.version == version:
            return


async def _next(lines: AsyncIterator[bytes], at_s: float) -> bytes | None:
    """Return the next line, or None at the end. Raises TimeoutError when it has not come by then."""
    # Around this call only: a deadline around a `yield` would hit whoever has the generator in hand.
    async with asyncio.timeout_at(at_s):
        with contextlib.suppress(StopAsyncIteration):
            return await anext(lines)
    return None
