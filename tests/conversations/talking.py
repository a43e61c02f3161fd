"""Both ends of a conversation through the router: bytes cut where the test says, read by h11."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random

from hypothesis import settings

from tests.conversations.reading import Answers, Message, Requests, answer_in
from tests.conversations.table import Sent
from tests.rig.client import DEADLINE_S, Client
from tests.rig.upstream import Peer

Pieces = Sequence[bytes]

DEEP = settings.get_current_profile_name() == "deep"
"""Whether every pair of cuts is tried, and not some."""

AT_ONCE = 8
"""Connections: while one of them waits for its bytes to be read, others go on."""

_READ_BYTES = 65_536


def cut(data: bytes, *places: int) -> list[bytes]:
    """The bytes in pieces, cut at these places; empty pieces left out."""
    at = sorted({0, *places, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


def every_cut(data: bytes) -> Iterator[list[bytes]]:
    """Whole, in two pieces at each place, and byte by byte."""
    yield [data]
    for place in range(1, len(data)):
        yield cut(data, place)
    yield cut(data, *range(len(data)))


def every_pair_of_cuts(data: bytes) -> Iterator[list[bytes]]:
    """In three pieces, at each pair of places."""
    for places in itertools.combinations(range(1, len(data)), 2):
        yield cut(data, *places)


def some_cuts(data: bytes, chance: Random, most: int = 6) -> list[bytes]:
    """In some pieces."""
    return cut(data, *(chance.randrange(len(data)) for _ in range(chance.randint(0, most))))


async def send(end: Client | Peer, pieces: Pieces) -> None:
    """Send each piece so that it is a read of its own for the other side, until that ends the connection."""
    for number, piece in enumerate(pieces):
        if number:
            await Client.turn()
        if end.writer.is_closing():
            return
        end.send(piece)


async def next_read(reader: asyncio.StreamReader, within_s: float | None = DEADLINE_S) -> bytes:
    """What comes next; b"" where the connection ends. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        return await reader.read(_READ_BYTES)


async def received(reader: asyncio.StreamReader, within_s: float | None = None) -> AsyncIterator[bytes]:
    """What comes, read by read; last b"" as the connection ends. Engines wait for as long as nobody asks them."""
    data = b"?"
    while data:
        data = await next_read(reader, within_s)
        yield data


async def read_answers(client: Client, reading: Answers, count: int) -> list[Message]:
    """Read so many answers. If the last one says that the connection ends, it must; else nothing may be left over."""
    async for data in received(client.reader, DEADLINE_S):
        reading.feed(data)
        assert reading.error is None, reading.error
        if len(reading.messages) == count and not reading.over:
            assert not reading.begun, "bytes that belong to no answer"
            return reading.messages
        if not data:
            break
    assert len(reading.messages) == count, f"{len(reading.messages)} answers, then the end"
    assert reading.over, "the connection ended without a word"
    return reading.messages


OK = b"HTTP/1.1 200 OK\r\nx-saw: %d\r\ncontent-length: %d\r\n\r\n%b"


class Engine:
    """Reads requests with h11, keeps them, and says in each answer which one it is of."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    async def script(self, peer: Peer) -> None:
        """For `ScriptedUpstream`."""
        reading = Requests()
        async for data in received(peer.reader):
            answered = len(reading.messages)
            reading.feed(data)
            assert reading.error is None, reading.error
            for message in reading.messages[answered:]:
                self.seen.append(message)
                await self.answer(peer, message)
            if reading.over:
                return

    async def answer(self, peer: Peer, message: Message) -> None:
        """Answer one request; for HEAD, with a head alone."""
        head_only = message.method == b"HEAD"
        peer.send(OK % (len(self.seen) - 1, len(message.body), b"" if head_only else message.body))

    def request_of(self, answer: Message) -> Message:
        """The request that an answer is of."""
        return self.seen[int(answer.value(b"x-saw") or -1)]


class Answering:
    """Gives the answers of a table, each cut as its request says in `x-play`: a name, and places."""

    def __init__(self, answers: dict[str, Sent]) -> None:
        self._answers = answers
        self._names = list(answers)

    def asked(self, name: str, places: Sequence[int], version: bytes = b"1.1") -> bytes:
        """A request for one of the answers, cut at these places."""
        sent = self._answers[name]
        body = b"{}" if sent.method == b"POST" else b""
        play = b"%d %b" % (self._names.index(name), b",".join(b"%d" % place for place in places))
        sized = b"content-length: 2\r\n" if body else b""
        head = b"%b /v1/files HTTP/%b\r\nhost: x\r\nx-play: %b\r\n%b\r\n" % (sent.method, version, play, sized)
        return head + body

    async def script(self, peer: Peer) -> None:
        """For `ScriptedUpstream`."""
        while True:
            head = await peer.reader.readuntil(b"\r\n\r\n")
            line = next(line for line in head.split(b"\r\n") if line.startswith(b"x-play: "))
            number, _, places = line.removeprefix(b"x-play: ").partition(b" ")
            sent = self._answers[self._names[int(number)]]
            if not sent.early:
                await self._rest(peer, head)
            await send(peer, cut(sent.data, *(int(place) for place in places.split(b",") if place)))
            if sent.early:
                await self._rest(peer, head)
            if sent.closes:
                peer.close()
                return

    async def _rest(self, peer: Peer, head: bytes) -> None:
        if b"content-length: 2\r\n" in head:
            await peer.reader.readexactly(2)

    def expected(self, name: str) -> Message:
        """What h11 reads in one of the answers, sent without a router."""
        sent = self._answers[name]
        return answer_in(sent.data, sent.method, ended=sent.closes)
