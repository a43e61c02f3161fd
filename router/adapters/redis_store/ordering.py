"""Operators' orders: one value in Redis that all routers read and write until they agree.

It is read every second and written when this router knows of a later order. A router that finds it gone, as after a
Redis that was emptied, writes it anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable
from importlib.resources import files

import msgspec
from redis.asyncio import Redis

from router.adapters.cancellation import stop_if_cancelled
from router.adapters.discovery.endpoints import checked_weight, replica_url
from router.adapters.redis_store.counts import Counts
from router.adapters.redis_store.encoding import Names
from router.adapters.redis_store.link import FAILURES, RETRY_S, Link, is_elsewhere
from router.adapters.redis_store.sealing import Keyring
from router.core.fleet import Fleet
from router.core.orders import KEEP_MS, About, Order, Orders

AGREE_S = 1.0
"""Between two readings: what is ordered at one router holds at all within this time."""

ATTEMPTS = 10
"""To write at a time; each one that fails has read what another router wrote meanwhile."""

AGREE_SCRIPT: bytes = files(__package__).joinpath("agree.lua").read_bytes()

LOGGER = logging.getLogger("warmroute.redis")

_decode = msgspec.msgpack.Decoder(list[Order]).decode


class Ordering:
    """This router's part in agreeing on the orders."""

    def __init__(self, link: Link, names: Names, fleet: Fleet, counts: Counts, unix_clock: Callable[[], float]) -> None:
        """`unix_clock` in seconds: orders are dated by it."""
        self.orders = Orders()
        self.changed: Callable[[], None] = _nothing
        """Called when others' orders have come in."""
        self.agreed = asyncio.Event()
        """Set when the orders have been read once."""
        self._link = link
        self._names = names
        self._fleet = fleet
        self._counts = counts
        self._unix_clock = unix_clock
        self._known = _digest(b"")
        """Of the value in Redis, as far as it is known here."""
        self._standing: dict[About, Order] = {}
        """What it says."""
        self._wake = asyncio.Event()
        self._failing = False

    def given(self) -> None:
        """Tell the others soon: something was ordered here."""
        self._wake.set()

    async def agree_forever(self) -> None:
        """Read and write until cancelled."""
        while True:
            stop_if_cancelled()
            await self._link.opened.wait()
            client = self._link.client
            if client is None:
                continue
            self._wake.clear()
            try:
                await self._agree(client)
            except FAILURES as error:
                await self._failed(client, error)
                await asyncio.sleep(RETRY_S)
                continue
            self._failing = False
            self.agreed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGREE_S):
                    await self._wake.wait()

    async def close(self) -> None:
        """Tell what is not told yet, if Redis takes it."""
        client = self._link.client
        if client is not None and self.orders.all != self._standing:
            with contextlib.suppress(*FAILURES):
                await self._agree(client)

    async def _agree(self, client: Redis) -> None:
        """Read, and write where we know better. Raises one of `FAILURES`."""
        self.orders.tidy(int(self._unix_clock() * 1000), self._fleet.__contains__)
        for _ in range(ATTEMPTS):
            ours = self.orders.all
            value = b"" if ours == self._standing else pack(ours.values(), self._names.keyring)
            present = await self._compare_and_set(client, value)
            stop_if_cancelled()
            if present is None:
                self._known, self._standing = (_digest(value), ours) if value else (self._known, self._standing)
                return
            self._take_in(present)

    async def _compare_and_set(self, client: Redis, value: bytes) -> bytes | None:
        arguments = (1, self._names.orders, self._known, value, KEEP_MS // 1000)
        present: bytes | None = await client.execute_command("EVAL", AGREE_SCRIPT, *arguments)  # type: ignore[no-untyped-call]
        self._counts.commands += 1
        return present

    def _take_in(self, value: bytes) -> None:
        said = unpack(value, self._names.keyring)
        self._known, self._standing = _digest(value), {order.about: order for order in said}
        if self.orders.take(said):
            self.changed()

    async def _failed(self, client: Redis, error: Exception) -> None:
        """Leave it to the link where Redis is lost; an answer that is an error says nothing of what else it does."""
        if is_elsewhere(error):
            await self._link.failed(client, error)
        elif not self._failing:
            LOGGER.warning("orders can't be shared with other routers: %s", " ".join(str(error).split()))
            self._failing = True


def pack(orders: Iterable[Order], keyring: Keyring) -> bytes:
    """Return the orders as they stand in Redis."""
    return keyring.seal_value(msgspec.msgpack.encode(list(orders)))


def unpack(value: bytes, keyring: Keyring) -> list[Order]:
    """Read what stands in Redis: nothing, where it is none of ours."""
    plain = keyring.unseal_value(value)
    try:
        orders = [] if plain is None else _decode(plain)
    except (msgspec.MsgspecError, RecursionError):
        return []
    return list(filter(_is_sound, orders))


def _is_sound(order: Order) -> bool:
    """Tell whether it can be one of ours: without a secret anybody may have written it."""
    listed = order.listed
    if not order.is_sound or listed is None:
        return order.is_sound
    try:
        checked_weight(listed.weight)
        return replica_url(listed.url) == listed.url
    except ValueError:
        return False


def _digest(value: bytes) -> str:
    return hashlib.sha1(value, usedforsecurity=False).hexdigest()


def _nothing() -> None:
    pass
