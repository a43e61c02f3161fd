"""ZMQ sockets: what engines publish, and the replay of what was missed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

import zmq
import zmq.asyncio

HIGH_WATER_BATCHES = 10_000
"""Batches that wait for a router that is held up, minutes of an engine's steps; then they are dropped, and missed."""

END_NUMBER = b"\xff" * 8
"""In the place of a number: the replay is over."""

_NUMBER_BYTES = 8


class Message(NamedTuple):
    """One batch as it was published."""

    number: int
    payload: bytes


class Feed(Protocol):
    """Where one engine's batches come from."""

    async def receive(self) -> Message:
        """Wait for the next batch."""

    def close(self) -> None:
        """Receive nothing more."""


def open_context() -> zmq.asyncio.Context:
    """Make the context of all sockets; `context.destroy(linger=0)` closes them."""
    return zmq.asyncio.Context()


def _numbered(frames: list[bytes]) -> Message | None:
    """Return a message of (topic,) number and payload; None: it is something else."""
    if len(frames) < 2 or len(frames[-2]) != _NUMBER_BYTES:
        return None
    return Message(int.from_bytes(frames[-2], "big"), frames[-1])


def _subscriber(context: zmq.asyncio.Context, topic: bytes) -> zmq.asyncio.Socket:
    socket = context.socket(zmq.SUB)
    socket.set(zmq.RCVHWM, HIGH_WATER_BATCHES)
    socket.set(zmq.IPV6, 1)
    # An engine's host that vanished without a word would be waited for without end.
    socket.set(zmq.HEARTBEAT_IVL, 10_000)
    socket.set(zmq.HEARTBEAT_TIMEOUT, 30_000)
    socket.set(zmq.RECONNECT_IVL_MAX, 2_000)
    socket.subscribe(topic)
    return socket


class Subscription:
    """The batches of an engine that binds its endpoint. The library reconnects by itself."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str, topic: bytes) -> None:
        """Raises zmq.ZMQError where the endpoint is none."""
        self._topic = topic
        self._socket = _subscriber(context, topic)
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    async def receive(self) -> Message:
        """Wait for the next batch."""
        while True:
            frames = await self._socket.recv_multipart()
            message = _numbered(frames)
            # A subscription is to a prefix: `kv@pod1` gets what is of `kv@pod11` too.
            if message is not None and len(frames) == 3 and (not self._topic or frames[0] == self._topic):
                return message

    def close(self) -> None:
        """Receive nothing more."""
        self._socket.close(linger=0)


class Exchange:
    """One address that engines connect to; their topics tell them apart."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str) -> None:
        """Raises zmq.ZMQError where the address is taken, or none."""
        self._socket = _subscriber(context, b"")
        self._socket.bind(endpoint)
        self.address: str = self._socket.get_string(zmq.LAST_ENDPOINT)
        self._feeds: dict[bytes, TopicFeed] = {}

    def feed(self, topic: bytes) -> TopicFeed:
        """Return the batches of one topic. KeyError: somebody has them already."""
        if topic in self._feeds:
            raise KeyError(topic)
        feed = self._feeds[topic] = TopicFeed(self, topic)
        return feed

    def leave(self, topic: bytes) -> None:
        """Give no more batches of a topic."""
        self._feeds.pop(topic, None)

    async def run(self) -> None:
        """Hand batches on until cancelled. Topics that nobody asks for are dropped."""
        while True:
            frames = await self._socket.recv_multipart()
            message = _numbered(frames)
            if message is not None and len(frames) == 3 and (feed := self._feeds.get(frames[0])) is not None:
                feed.put(message)

    def close(self) -> None:
        """Give the address free."""
        self._socket.close(linger=0)


class TopicFeed:
    """The batches of one topic. A reader that is slow loses the oldest, and notices by their numbers."""

    def __init__(self, exchange: Exchange, topic: bytes) -> None:
        self._exchange = exchange
        self._topic = topic
        self._messages: deque[Message] = deque(maxlen=HIGH_WATER_BATCHES)
        self._arrived = asyncio.Event()

    def put(self, message: Message) -> None:
        """Take a batch in."""
        self._messages.append(message)
        self._arrived.set()

    async def receive(self) -> Message:
        """Wait for the next batch."""
        while not self._messages:
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    def close(self) -> None:
        """Receive nothing more."""
        self._exchange.leave(self._topic)


async def replayed(context: zmq.asyncio.Context, endpoint: str, first: int, limit_s: float) -> AsyncGenerator[Message]:
    """Ask an engine for its batches from number `first` on, as far as it still has them.

    Each has to come within `limit_s` of the one before. Raises TimeoutError; zmq.ZMQError where the endpoint is none.
    """
    socket = context.socket(zmq.DEALER)
    try:
        socket.set(zmq.IPV6, 1)
        socket.connect(endpoint)
        async with asyncio.timeout(limit_s):
            await socket.send_multipart([b"", first.to_bytes(_NUMBER_BYTES, "big")])
        while True:
            async with asyncio.timeout(limit_s):
                frames = await socket.recv_multipart()
            message = _numbered(frames)
            if message is None or frames[-2] == END_NUMBER:
                return
            yield message
    finally:
        socket.close(linger=0)
