"""Follows the KV cache events of all replicas that publish some, as they come and go."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import zmq

from router.adapters.kv_events.feeds import Exchange, Feed, Subscription, open_context
from router.adapters.kv_events.follower import Follower
from router.adapters.kv_events.metrics import KvEventsCollector
from router.adapters.kv_events.sources import Given, Source, SourceError, listed_sources
from router.core.fleet import Fleet
from router.core.types import ReplicaId
from router.ports import Endpoint

FIND_S = 10.0
"""Between two looks at where an engine publishes: one that restarts may have other ports."""

FIRST_FIND_S = 1.0
"""The same before the first answer."""

LOGGER = logging.getLogger("warmroute.fleet")

List = Callable[[str], Awaitable[object]]
"""Asks the engine at a URL for its /kv_event_sources; raises OSError where it can't be read, LookupError without such a
route."""


class Options(NamedTuple):
    """What is set of the events."""

    given: tuple[Given, ...] = ()
    bind: str | None = None
    """Endpoint that engines connect to; None: none does."""


class KvEvents:
    """All followers. `begin` and `end` return at once; `run` has to run meanwhile."""

    def __init__(self, fleet: Fleet, endpoints: Mapping[ReplicaId, Endpoint], ask: List, options: Options) -> None:
        """`endpoints`: of the replicas in the fleet. Raises zmq.ZMQError where `options.bind` can't be listened on."""
        self.followers: dict[ReplicaId, Follower] = {}
        self.collector = KvEventsCollector(self.followers)
        self._fleet = fleet
        self._endpoints = endpoints
        self._ask = ask
        self._given = options.given
        self._context = open_context()
        self._exchange = None if options.bind is None else Exchange(self._context, options.bind)
        self._tasks: dict[ReplicaId, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str | None:
        """Where engines connect to; None: nowhere."""
        return None if self._exchange is None else self._exchange.address

    def begin(self, replica_id: ReplicaId) -> None:
        """Follow a replica of the fleet."""
        endpoint = self._endpoints[replica_id]
        follower = self.followers[replica_id] = Follower(self._fleet[replica_id], endpoint.rank, time.monotonic)
        self._tasks[replica_id] = asyncio.get_running_loop().create_task(self._follow(follower, endpoint))

    def end(self, replica_id: ReplicaId) -> None:
        """Follow a replica no more; nothing happens where it is not followed."""
        self.followers.pop(replica_id, None)
        task = self._tasks.pop(replica_id, None)
        if task is not None:
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def restarted(self, replica_id: ReplicaId) -> None:
        """Note that a replica's metrics show a new process."""
        if replica_id in self.followers:
            self.followers[replica_id].restarted()

    def emptied(self, replica_id: ReplicaId) -> None:
        """Note that a replica has emptied its cache."""
        if replica_id in self.followers:
            self.followers[replica_id].emptied()

    def describe(self, replica_id: ReplicaId) -> dict[str, object]:
        """Describe how a replica is followed."""
        follower = self.followers[replica_id]
        return {"live": follower.live, "blocks": len(follower.cache)} | dataclasses.asdict(follower.counts)

    async def run(self) -> None:
        """Hand on what comes to the address that engines connect to, until cancelled."""
        if self._exchange is not None:
            await self._exchange.run()
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Close all sockets."""
        for replica_id in list(self.followers):
            self.end(replica_id)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._exchange is not None:
            self._exchange.close()
        self._context.destroy(linger=0)

    async def _follow(self, follower: Follower, endpoint: Endpoint) -> None:
        """Follow from wherever the engine publishes at the time."""
        source: Source | None = None
        following: asyncio.Task[None] | None = None
        try:
            while True:
                found = await self._find(follower, endpoint)
                if found is not None and (found != source or following is None or following.done()):
                    await _cancelled(following)
                    following, source = self._start(follower, found), found
                await asyncio.sleep(FIND_S if source else FIRST_FIND_S)
        finally:
            await _cancelled(following)

    async def _find(self, follower: Follower, endpoint: Endpoint) -> Source | None:
        host = urlsplit(endpoint.url).hostname or ""
        given = [one for one in self._given if one.url in (None, endpoint.url)]
        if given:
            return max(given, key=lambda one: one.url is not None).of_rank(endpoint.rank or 0, host)
        try:
            sources = listed_sources(await self._ask(endpoint.url), host)
        except (OSError, LookupError, SourceError) as error:
            LOGGER.debug("replica %s: where it publishes can't be read: %s", follower.replica.replica_id, error)
            return None
        if endpoint.rank is None and len(sources) == 1:
            return next(iter(sources.values()))
        if endpoint.rank is None and sources:
            LOGGER.debug("replica %s has several ranks: events tell nothing of it", follower.replica.replica_id)
        return None if endpoint.rank is None else sources.get(endpoint.rank)

    def _start(self, follower: Follower, source: Source) -> asyncio.Task[None] | None:
        try:
            feed = self._feed(source)
        except (zmq.ZMQError, KeyError, SourceError) as error:
            LOGGER.warning("replica %s: its KV cache events can't be followed: %s", follower.replica.replica_id, error)
            return None
        return asyncio.get_running_loop().create_task(_run(follower, feed, self._context, source.replay))

    def _feed(self, source: Source) -> Feed:
        if source.events is not None:
            return Subscription(self._context, source.events, source.topic)
        if self._exchange is None:
            raise SourceError("it connects to its subscriber, and no address is given that it could connect to")
        try:
            return self._exchange.feed(source.topic)
        except KeyError:
            raise SourceError(f"another replica publishes under the topic {source.topic!r}, too") from None


async def _run(follower: Follower, feed: Feed, context: zmq.asyncio.Context, replay: str | None) -> None:
    try:
        await follower.run(feed, context, replay)
    except Exception:
        LOGGER.exception("following a replica's KV cache events failed, and begins again")
    finally:
        feed.close()


async def _cancelled(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
