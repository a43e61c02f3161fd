"""What the other routers say, as it comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from router.adapters.cancellation import stop_if_cancelled
from router.adapters.redis_store.encoding import Envelope, Names, read, unpack
from router.adapters.redis_store.link import FAILURES, RETRY_S, Link
from router.core.news import Bulletin
from router.core.peers import SILENT_S

LOGGER = logging.getLogger("warmroute.redis")


class Hearing:
    """The subscription to the routers' channel. Our own bulletins come back too, which shows that it lives."""

    def __init__(
        self,
        link: Link,
        names: Names,
        router: str,
        hear: Callable[[str, Bulletin], None],
        subscribed: Callable[[], None],
    ) -> None:
        """`hear` is told what comes, `subscribed` that it will come from now on."""
        self._link = link
        self._channel = names.channel
        self._keyring = names.keyring
        self._router = router
        self._hear = hear
        self._subscribed = subscribed
        self._numbers: dict[str, int] = {}
        self.unread = 0
        """Bulletins of another version or with another secret."""

    async def hear_forever(self) -> None:
        """Subscribe, listen, and begin again when the connection is lost or nothing is heard any more."""
        while True:
            stop_if_cancelled()
            await self._link.opened.wait()
            client = self._link.client
            if client is None:
                continue
            try:
                await self._listen(client)
            except FAILURES as error:
                await self._link.failed(client, error)
                await asyncio.sleep(RETRY_S)

    async def _listen(self, client: Redis) -> None:
        async with client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(self._channel)
            self._subscribed()
            while client is self._link.client:
                self._take_in(await _next(subscription))

    def _take_in(self, data: object) -> None:
        envelope = unpack(data) if isinstance(data, bytes) else None
        if envelope is None or not self._is_new(envelope):
            self.unread += envelope is None
            return
        bulletin = read(envelope, self._keyring)
        if bulletin is not None:
            self._numbers[envelope.router] = envelope.number
            self._hear(envelope.router, bulletin)
            return
        if not self.unread:
            LOGGER.warning("router %s has another redis_secret than this one: neither hears the other", envelope.router)
        self.unread += 1

    def _is_new(self, envelope: Envelope) -> bool:
        return envelope.router != self._router and envelope.number > self._numbers.get(envelope.router, -1)

    def forget(self, router: str) -> None:
        """Drop what is known of a router that has gone."""
        self._numbers.pop(router, None)
        self._keyring.forget(router)


async def _next(subscription: PubSub) -> object:
    """Wait for the next message. Raises TimeoutError when not even our own heartbeats are heard."""
    async with asyncio.timeout(SILENT_S):
        while True:
            message: dict[str, object] | None = await subscription.get_message(timeout=None)
            stop_if_cancelled()
            if message is not None:
                return message["data"]
