"""The connection to Redis: found, lost and found again, and how it is."""

from __future__ import annotations

import asyncio
import logging

from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from router.adapters.redis_store.address import Address
from router.adapters.redis_store.closing import close
from router.adapters.redis_store.locate import locate
from router.adapters.redis_store.state import Condition, State

LOGGER = logging.getLogger("warmroute.redis")

TIMEOUT_S = 1.0
"""How long an answer, or a connection, is waited for behind the requests' backs. A frozen Redis that goes on is found
again within this and `RETRY_S`."""

RETRY_S = 0.3
"""Between two attempts to find it, or to see whether it is well again."""

LOOPS = 5
"""Those that talk to Redis: telling, asking, hearing, ordering, sharing what keys have used."""

FAILURES = (RedisError, OSError, TimeoutError)


_ELSEWHERE = (MovedError, AskError, ReadOnlyError, MasterDownError, ClusterDownError)
"""Errors of a server that is not, or no longer, the one to talk to."""


class Link:
    """One client for all that talk to Redis; whoever finds it broken drops it, and `open` finds the server anew."""

    def __init__(self, address: Address, key: str) -> None:
        """`key` tells which node of a cluster is meant: all keys lie in its slot."""
        self.address = address
        self.condition = Condition()
        self.client: Redis | None = None
        """None while there is no connection."""
        self.opened = asyncio.Event()
        self.quick_s = float("-inf")
        """When an answer came in time last, by the event loop's clock."""
        self._key = key
        self._logged = State.UP  # so that a first connection is no news, and a first failure is

    async def open(self) -> Redis:
        """Return the client, connected anew if need be. Raises one of `FAILURES`."""
        if self.client is None:
            client = await locate(self.address, self._key, TIMEOUT_S)
            # A connection for each loop, so that no request waits for one to be made.
            pings = [asyncio.ensure_future(client.ping()) for _ in range(LOOPS)]
            try:
                await asyncio.gather(*pings)
            except BaseException:
                for ping in pings:  # one that went on would connect a client that is closed
                    ping.cancel()
                await asyncio.wait(pings)
                await close([client])
                raise
            self.client = client
            self.opened.set()
        return self.client

    async def drop(self, client: Redis | None) -> None:
        """Give a client up that was found broken, unless there is another by now."""
        if client is not None and client is self.client:
            self.client = None
            self.opened.clear()
        if client is not None:
            await close([client])

    def quick(self) -> None:
        """Note an answer in time."""
        self.quick_s = asyncio.get_running_loop().time()
        self.condition.quick()
        self._log_change()

    def late(self, deadline_s: float) -> None:
        """Note that an answer has not come in time."""
        self.condition.late(f"no answer within {deadline_s * 1000:g} ms")
        self._log_change()

    async def failed(self, client: Redis | None, error: Exception) -> None:
        """Note an error: refused where Redis said so itself, else lost. A client that is of no more use is dropped.

        One that was dropped before says nothing of Redis any more. None: no client could be made.
        """
        if client is self.client:
            self._judge(error)
        if is_elsewhere(error):
            await self.drop(client)

    def _judge(self, error: Exception) -> None:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ResponseError | AuthenticationError):
            self.condition.refused(text)
        else:
            self.condition.lost(text)
        self._log_change()

    def _log_change(self) -> None:
        state = self.condition.state
        if state is not self._logged:
            self._logged = state
            level = logging.INFO if state is State.UP else logging.WARNING
            LOGGER.log(level, "redis %s is %s: %s", self.address, state, self.condition.cause)


def is_elsewhere(error: Exception) -> bool:
    """Tell whether another server or connection may do better. A script's READONLY has no class of its own."""
    return not isinstance(error, ResponseError) or isinstance(error, _ELSEWHERE) or "READONLY" in str(error)
