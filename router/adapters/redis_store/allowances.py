"""What clients' keys have used, shared by routers: each tells its own counts and adds the others'.

No request waits for that. Between two rounds a key may use what is left once at every router, and while Redis is away
each router goes by its own counts and by what it heard last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import xxhash
from redis.asyncio import Redis

from router.adapters.cancellation import stop_if_cancelled
from router.adapters.redis_store.encoding import VERSION, Names, encode
from router.adapters.redis_store.link import FAILURES, RETRY_S, Link
from router.adapters.redis_store.store import RedisStore
from router.core.allowance import PARTS, WINDOW_S, Allowance, Elsewhere, Sliding

ROUND_S = 0.25
"""How old the others' counts are at the most."""

_Count = tuple[bytes, list[int], list[int], int]


class _Told(msgspec.Struct, array_like=True):
    version: int
    number: int
    """Grows from one telling of a router to its next."""
    sealed: bytes


_decode_told = msgspec.msgpack.Decoder(_Told).decode
_decode_counts = msgspec.msgpack.Decoder(list[_Count]).decode


class SharedAllowances:
    """One router's part."""

    def __init__(
        self,
        link: Link,
        names: Names,
        router: str,
        others: Callable[[], Iterable[str]],
        allowances: Mapping[str, Allowance],
        clock: Callable[[], float],
    ) -> None:
        """`others`: the routers that are known now; `allowances` by the key's name, those in force at any time."""
        self._link = link
        self._keyring = names.keyring
        self._base = names.channel.removesuffix("news") + "a:"
        self._router = router
        self._others = others
        self._allowances = allowances
        self._clock = clock
        self._number = 0
        self._told_something = False
        self._heard: dict[str, int] = {}

    async def share_forever(self) -> None:
        """Tell and ask until cancelled."""
        while True:
            stop_if_cancelled()
            await asyncio.sleep(ROUND_S)
            client = self._link.client
            others = list(self._others())
            self._drop_gone(others)
            if client is None or not self._allowances:
                continue
            try:
                self._take_in(others, await self._exchange(client, others))
            except FAILURES as error:
                await self._link.failed(client, error)
                await asyncio.sleep(RETRY_S)

    async def _exchange(self, client: Redis, others: list[str]) -> list[bytes | None]:
        """Tell our counts and return what the others have told."""
        pipeline = client.pipeline(transaction=False)
        counts = self._counts()
        if counts or self._told_something:
            self._number += 1
            value = encode(_Told(VERSION, self._number, self._seal(encode(counts))))
            pipeline.execute_command("SET", self._base + self._router, value, "EX", int(WINDOW_S))
        if others:
            pipeline.execute_command("MGET", *(self._base + other for other in others))
        results = await pipeline.execute()
        stop_if_cancelled()
        self._told_something = bool(counts)
        values: list[bytes | None] = results[-1] if others else []
        return values

    def _seal(self, data: bytes) -> bytes:
        return self._keyring.seal(_sealed_as(self._router), self._number, data)

    def _counts(self) -> list[_Count]:
        now = self._clock()
        return [
            (self._hash(name), used.requests.parts(now), used.tokens.parts(now), used.running)
            for name, used in self._allowances.items()
            if used.running or used.requests.total(now) or used.tokens.total(now)
        ]

    def _hash(self, name: str) -> bytes:
        """Names of keys do not leave the process."""
        return self._keyring.keyed_hash(xxhash.xxh3_64_intdigest(name.encode()))

    def _take_in(self, others: Sequence[str], values: Sequence[bytes | None]) -> None:
        by_hash = {self._hash(name): used for name, used in self._allowances.items()}
        for other, value in zip(others, values, strict=True):
            counts = self._read(other, value)
            if counts is None:
                continue
            told = {count[0]: count for count in counts}
            for name, used in by_hash.items():
                self._put(used, other, told.get(name))

    def _read(self, other: str, value: bytes | None) -> list[_Count] | None:
        """Return what is new of a router; None where there is nothing new, or nothing that can be read."""
        if value is None:
            return None
        try:
            told = _decode_told(value)
            if told.version != VERSION or told.number == self._heard.get(other):
                return None
            data = self._keyring.unseal(_sealed_as(other), told.number, told.sealed)
            counts = None if data is None else _decode_counts(data)
        except (msgspec.MsgspecError, RecursionError):
            return None
        self._heard[other] = told.number
        return counts

    def _put(self, used: Allowance, other: str, count: _Count | None) -> None:
        if count is None:
            used.elsewhere.pop(other, None)
            return
        _, requests, tokens, running = count
        now = self._clock()
        request_count, token_count = (Sliding.of_parts(parts[:PARTS], now) for parts in (requests, tokens))
        used.elsewhere[other] = Elsewhere(request_count, token_count, max(0, running))

    def _drop_gone(self, others: list[str]) -> None:
        """What a router had under way goes with it; what it let in stays in the window."""
        now = self._clock()
        for router in [router for router in self._heard if router not in others]:
            left = 0
            for used in self._allowances.values():
                there = used.elsewhere.get(router)
                if there is None:
                    continue
                if there.requests.total(now) or there.tokens.total(now):
                    used.elsewhere[router] = there._replace(running=0)
                    left += 1
                else:
                    del used.elsewhere[router]
            if not left:
                del self._heard[router]
                self._keyring.forget(_sealed_as(router))


def shared_allowances(store: RedisStore, allowances: Mapping[str, Allowance]) -> SharedAllowances:
    """Return a router's part, through its store's connection; its loop is to run beside the store's."""

    def others() -> list[str]:
        return [router for router, _ in store.peers]

    return SharedAllowances(store.link, store.names, store.router, others, allowances, time.monotonic)


def _sealed_as(router: str) -> str:
    """Name a key apart from that of the router's bulletins: both number what they seal, and no number may repeat."""
    return router + "/allowances"
