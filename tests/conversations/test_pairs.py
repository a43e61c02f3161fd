"""Every framing of a request with every framing of an answer, both cut somewhere, on connections that live on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import product
from random import Random

from tests.conversations.reading import Answers, Message, check_answer, check_request, requests_in
from tests.conversations.table import ANSWERS, REQUESTS, Sent
from tests.conversations.talking import AT_ONCE, DEEP, Engine, read_answers, send, some_cuts
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer

ROUNDS = 200 if DEEP else 1
Pair = tuple[str, str, int]


class Playing(Engine):
    """Gives the answer that each request names in `x-play`, cut somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.by_number: dict[bytes, Message] = {}

    async def answer(self, peer: Peer, message: Message) -> None:
        name, _, number = (message.value(b"x-play") or b"").rpartition(b" ")
        self.by_number[number] = message
        sent = ANSWERS[name.decode()]
        await send(peer, some_cuts(sent.data, Random(int(number))))
        if sent.closes:
            peer.close()


def numbered(data: bytes, play: str, number: int) -> bytes:
    """The request with a header that says what to answer, and which of all it is."""
    head, end, body = data.lstrip(b"\r\n").partition(b"\r\n\r\n")
    return head + b"\r\nx-play: %b %d" % (play.encode(), number) + end + body


def single(name: str) -> bool:
    """Whether a row of the table is one request."""
    return len(requests_in(REQUESTS[name]).messages) == 1


def fits(data: bytes, sent: Sent) -> bool:
    """Whether this is an answer to such a request."""
    return data.startswith(b"HEAD ") == (sent.method == b"HEAD")


async def client(stage: Stage, router: Router, engine: Playing, authority: bytes, pairs: Iterable[Pair]) -> None:
    connection = await stage.client(router)
    for request, answer, number in pairs:
        data, sent = numbered(REQUESTS[request], answer, number), ANSWERS[answer]
        (asked,) = requests_in(data).messages
        await send(connection, some_cuts(data, Random(-number)))
        (got,) = await read_answers(connection, Answers(asked.method), 1)
        check_answer(expected(sent), got, http_1_0=asked.head.http_version == b"1.0")
        check_request(asked, engine.by_number.pop(b"%d" % number), authority)
        assert got.last == asked.last
        if asked.last:
            connection.leave()
            connection = await stage.client(router)


def expected(sent: Sent) -> Message:
    reading = Answers(sent.method)
    reading.feed(sent.data)
    reading.feed(b"")
    return reading.messages[0]


async def test_every_framing_of_a_request_goes_with_every_framing_of_an_answer(stage: Stage) -> None:
    engine = Playing()
    upstream = await stage.upstream(engine.script)
    router = await stage.router(upstream)
    requests = [name for name in REQUESTS if single(name)]
    fitting = [pair for pair in product(requests, ANSWERS) if fits(REQUESTS[pair[0]], ANSWERS[pair[1]])]
    Random(1).shuffle(fitting)
    pairs = [(*pair, number) for number, pair in enumerate(fitting * ROUNDS)]
    shared, authority = iter(pairs), f"127.0.0.1:{upstream.port}".encode()
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(client(stage, router, engine, authority, shared))
    assert len(engine.seen) == len(pairs) > 1_000
    assert router.records.failed == []
