"""Follows one replica's events: takes batches in by their order, and fetches what was missed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

import zmq.asyncio

from router.adapters.kv_events.decode import Batch, BatchError, Cleared, Reader, RemovedFrom
from router.adapters.kv_events.feeds import Feed, Message, replayed
from router.adapters.kv_events.order import Order, Place
from router.core.engine_cache.cache import EngineCache
from router.core.replica import Replica

REPLAY_S = 2.0
"""How long a replayed batch may take. vLLM looks for those who ask every 0.1 s, and then sends ten a millisecond."""

AGAIN_S = 5.0
"""Between two replays that failed, at the least."""

SILENCE_S = 5.0
"""An engine that answers requests and publishes nothing for so long is asked whether it still does."""

COMPLETE_RATIO = 0.9
"""Of an engine's blocks: so many known mean that all are, whatever was missed before. Running requests' last blocks are
not full, and what is hit again and again is never reported anew, so that all of them are never known."""

LOGGER = logging.getLogger("warmroute.fleet")


@dataclass(slots=True)
class EventCounts:
    """What came of one replica's events."""

    batches: int = 0
    gaps: int = 0
    """Times that batches were missing."""
    replays: int = 0
    """Times that all of them came by a replay."""
    restarts: int = 0
    forgotten: int = 0
    """Times that they did not, and everything known was forgotten."""
    garbage: int = 0
    """Batches that could not be read."""


class Follower:
    """What one replica's events say, kept in an `EngineCache`. The replica gets it while it is complete."""

    def __init__(self, replica: Replica, rank: int | None, clock: Callable[[], float]) -> None:
        """`rank`: the data-parallel rank that it is of its engine, as its batches say. `clock` in monotonic seconds."""
        self.replica = replica
        self.cache = EngineCache()
        self.counts = EventCounts()
        self._rank = rank
        self._clock = clock
        self._order = Order()
        self._reader = Reader()
        self._complete = False
        """Whether all is known that the engine holds."""
        self._restarts_ahead = 0
        """Restarts that its events have told of and its metrics have not; below 0: the other way round."""
        self._replay_due_s: float | None = None
        """When to try again what failed; None: nothing did."""
        self._heard_s = clock()

    @property
    def live(self) -> bool:
        """Whether the replica is known by its events."""
        return self.replica.contents is self.cache

    @property
    def next_number(self) -> int:
        """Number of the batch that is waited for."""
        return self._order.next

    async def run(self, feed: Feed, context: zmq.asyncio.Context, replay: str | None) -> None:
        """Follow until cancelled. `replay`: endpoint of what was missed; None: there is none."""
        try:
            await self._replay(context, replay)
            while True:
                message = await self._next_message(feed)
                if message is None:
                    await self._check(context, replay)
                elif not self._take_in_order(message):
                    await self._catch_up(message, context, replay)
                elif self._replay_due_s is not None and self._clock() >= self._replay_due_s:
                    await self._replay(context, replay)
        finally:
            self._stand_aside()

    async def _next_message(self, feed: Feed) -> Message | None:
        """Wait for a batch; None after a silence."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                return await feed.receive()
        return None

    async def _check(self, context: zmq.asyncio.Context, replay: str | None) -> None:
        """Believe in a silent engine no more, if it answers requests all the while and does not confirm its silence."""
        if self.replica.ledger.last_first_byte_s < self._heard_s + SILENCE_S:
            return
        if await self._replay(context, replay):
            self._heard_s = self._clock()
        elif self.live:
            LOGGER.warning("replica %s publishes no KV cache events any more", self.replica.replica_id)
            self._stand_aside()

    def restarted(self) -> None:
        """Take in that the engine is a new process, by its metrics. Its events may have told so before."""
        self._restarts_ahead -= 1
        if self._restarts_ahead < 0:
            self._begin_anew()
            self._complete = True
            self._stand_in()

    def emptied(self) -> None:
        """Take in that the engine has emptied its cache, which vLLM publishes with the next request only."""
        self.cache.cleared()

    # Order

    def _take_in_order(self, message: Message) -> bool:
        """Take a batch in; False where others are missing before it."""
        self._heard_s = self._clock()
        place = self._order.place(message.number)
        if place is Place.RESTARTED:
            self._note_restart()
            place = Place.NEXT if message.number == 0 else Place.MISSED
        if place is Place.NEXT:
            self._complete = self._complete or message.number == 0
            self._take(message)
        return place is not Place.MISSED

    def _note_restart(self) -> None:
        LOGGER.info("replica %s publishes its KV cache events anew", self.replica.replica_id)
        self.counts.restarts += 1
        self._restarts_ahead += 1
        self._begin_anew()

    async def _catch_up(self, message: Message, context: zmq.asyncio.Context, replay: str | None) -> None:
        """Fetch what is missing before a batch; else forget everything, and go on from that batch."""
        self.counts.gaps += 1
        self._stand_aside()
        await self._replay(context, replay)
        if self._order.next < message.number:
            LOGGER.warning("replica %s: KV cache events are lost, the mirror stands in", self.replica.replica_id)
            self.counts.forgotten += 1
            self._begin_anew()
        if self._order.next <= message.number:  # the engine publishes a batch before it can replay it
            self._take(message)

    async def _replay(self, context: zmq.asyncio.Context, endpoint: str | None) -> bool:
        """Fetch what the engine has of its batches since the last known one, or all; return whether that was done."""
        self._replay_due_s = None
        if endpoint is None:
            return False
        try:
            if not (self._order.next and await self._replay_on(context, endpoint)):
                await self._replay_all(context, endpoint)
        except (TimeoutError, zmq.ZMQError) as error:
            LOGGER.debug("replica %s replays nothing: %r", self.replica.replica_id, error)
            self._replay_due_s = self._clock() + AGAIN_S
            return False
        self.counts.replays += 1
        self._stand_in()
        return True

    async def _replay_on(self, context: zmq.asyncio.Context, endpoint: str) -> bool:
        """Go on from the last known batch; False where the engine has another or none under its number."""
        joined = False
        async with contextlib.aclosing(replayed(context, endpoint, self._order.next - 1, REPLAY_S)) as messages:
            async for message in messages:
                if joined:
                    self._take(message)
                elif not self._order.is_last(*message):
                    return False
                joined = True
                await asyncio.sleep(0)  # streams go on meanwhile
        return joined

    async def _replay_all(self, context: zmq.asyncio.Context, endpoint: str) -> None:
        """Begin anew with all that the engine has; it is complete if that begins with the first batch."""
        self._begin_anew()
        complete = True
        async with contextlib.aclosing(replayed(context, endpoint, 0, REPLAY_S)) as messages:
            async for message in messages:
                complete = complete and message.number == self._order.next
                self._take(message)
                await asyncio.sleep(0)
        self._complete = complete

    # Contents

    def _begin_anew(self) -> None:
        self._order.begin_anew()
        self.cache.forget()
        self._complete = False
        self._stand_aside()

    def _take(self, message: Message) -> None:
        """Take a batch in, whatever is in it."""
        self._order.took(*message)
        self.counts.batches += 1
        try:
            batch = self._reader.read(message.payload)
        except BatchError as error:
            self._lose(error)
            return
        if self._rank is None or batch.rank in (None, self._rank):
            self._apply(batch)
        self._complete = self._complete or self._nearly_all_known()
        self._stand_in()

    def _lose(self, error: BatchError) -> None:
        """Forget everything: nobody knows what a batch said that can't be read."""
        if not self.counts.garbage:
            LOGGER.warning("replica %s publishes what can't be read: %s", self.replica.replica_id, error)
        self.counts.garbage += 1
        self.cache.forget()
        self._complete = False
        self._stand_aside()

    def _apply(self, batch: Batch) -> None:
        for event in batch.events:
            if isinstance(event, Cleared):
                self.cache.cleared()
            elif isinstance(event, RemovedFrom):
                self.cache.removed(event.hashes, event.medium)
            else:
                self.cache.stored(event.stored, event.medium)

    def _nearly_all_known(self) -> bool:
        kv_tokens = self.replica.report.kv_tokens
        if kv_tokens is None or not self.cache.block_tokens:
            return False
        return self.cache.gpu_blocks * self.cache.block_tokens >= COMPLETE_RATIO * kv_tokens

    def _stand_in(self) -> None:
        """Let the replica be known by its events, if they are all here."""
        if self._complete and not self.live:
            LOGGER.info("replica %s is known by its KV cache events", self.replica.replica_id)
            self.replica.contents = self.cache

    def _stand_aside(self) -> None:
        """Let the replica be known by its mirror."""
        if self.live:
            self.replica.contents = None
