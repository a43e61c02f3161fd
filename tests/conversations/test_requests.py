"""Requests in every framing, cut at every place: the engine reads what the client sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain
from random import Random

import pytest

from tests.conversations.reading import Answers, Message, check_request, requests_in
from tests.conversations.table import REQUESTS
from tests.conversations.talking import (
    AT_ONCE,
    DEEP,
    Engine,
    cut,
    every_cut,
    every_pair_of_cuts,
    read_answers,
    send,
    some_cuts,
)
from tests.rig.client import Client
from tests.rig.running import Router
from tests.rig.stage import Stage


class Talk:
    """One table row, through one router, by some clients at once."""

    def __init__(self, stage: Stage, router: Router, engine: Engine, data: bytes, authority: bytes) -> None:
        self.stage, self.router, self.engine, self.authority = stage, router, engine, authority
        reading = requests_in(data)
        assert reading.error is None
        assert not reading.begun
        self.sent = reading.messages
        self.ends = any(message.last for message in self.sent)
        self.count = 0

    async def client(self, ways: Iterable[list[bytes]]) -> None:
        client = await self.stage.client(self.router)
        for pieces in ways:
            await self.once(client, pieces)
            self.count += 1
            if self.ends:
                client.leave()
                client = await self.stage.client(self.router)

    async def once(self, client: Client, pieces: list[bytes]) -> None:
        await send(client, pieces)
        reading = Answers(*(message.method for message in self.sent))
        answers = await read_answers(client, reading, len(self.sent))
        for sent, answer in zip(self.sent, answers, strict=True):
            self.check(sent, answer)

    def check(self, sent: Message, answer: Message) -> None:
        seen = self.engine.request_of(answer)
        check_request(sent, seen, self.authority)
        assert answer.status == 200
        assert answer.body == (b"" if sent.method == b"HEAD" else sent.body)
        assert answer.last == sent.last


def ways(data: bytes) -> Iterable[list[bytes]]:
    """How a message is cut."""
    chance = Random(len(data))
    return chain(every_cut(data), every_pair_of_cuts(data) if DEEP else (some_cuts(data, chance) for _ in range(10)))


async def play(stage: Stage, data: bytes) -> tuple[Talk, Engine]:
    engine = Engine()
    upstream = await stage.upstream(engine.script)
    router = await stage.router(upstream)
    talk = Talk(stage, router, engine, data, f"127.0.0.1:{upstream.port}".encode())
    shared = iter(ways(data))
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(talk.client(shared))
    return talk, engine


@pytest.mark.timeout(3600 if DEEP else 60)
@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in REQUESTS.items()])
async def test_what_goes_in_comes_out_wherever_it_is_cut(stage: Stage, data: bytes) -> None:
    talk, engine = await play(stage, data)
    assert talk.count > len(data)
    assert len(engine.seen) == talk.count * len(talk.sent), "each request was seen once"


class Reads(asyncio.Protocol):
    """Notes the size of each read."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.sizes.append(len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


async def test_a_piece_is_a_read_of_its_own(stage: Stage) -> None:
    """Else nothing here would be cut. The router reads as this does."""
    reads: list[Reads] = []

    def accepted() -> Reads:
        reads.append(Reads())
        return reads[-1]

    server = await asyncio.get_running_loop().create_server(accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def sender() -> None:
        client = await Client.open(port)
        await send(client, cut(b"x" * 100, *range(100)))
        client.leave()

    await asyncio.gather(*(sender() for _ in range(AT_ONCE)))
    await asyncio.gather(*(each.ended.wait() for each in reads))
    server.close()
    assert sum(len(each.sizes) for each in reads) > 0.9 * 100 * AT_ONCE
