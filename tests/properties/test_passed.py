"""Honest requests of every framing, many at once: no byte is changed, no answer is another's, nothing is left over."""

from __future__ import annotations

import pytest

from tests.rig.client import Client
from tests.rig.fuzzed import answer_of, request_of
from tests.rig.leaks import Held
from tests.rig.passed import Passing, pass_all
from tests.rig.stage import Stage
from tests.rig.upstream import Peer

COUNT = 400
"""A seed, in a second or two; `make passed` takes 100,000."""


@pytest.mark.parametrize("seed", range(2))
async def test_what_arrives_is_what_was_sent(stage: Stage, seed: int) -> None:
    tally = await pass_all(stage, seed, COUNT)
    assert (tally.changed, tally.crossed, tally.leaked) == ([], [], 0)
    assert tally.passed >= COUNT
    assert tally.left > 0


@pytest.mark.parametrize(("answered", "changed", "crossed"), [(0, 0, 0), (1, 0, 1)])
async def test_an_answer_of_another_is_seen(stage: Stage, answered: int, changed: int, crossed: int) -> None:
    passing = Passing(stage, 1, 1)

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(answer_of(1, answered, "POST").data)
        peer.close()

    upstream = await stage.upstream(script)
    client = await Client.open(upstream.port)
    sent = request_of(1, 0)
    client.send(b"POST /v1/x HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    sent.first = "POST /v1/x"
    await passing.read(client, 0, sent)
    client.leave()
    assert (len(passing.tally.changed), len(passing.tally.crossed)) == (changed, crossed)


async def test_a_byte_that_is_changed_is_seen(stage: Stage) -> None:
    passing = Passing(stage, 1, 1)
    answers = [answer_of(1, number, "POST") for number in range(100)]
    number = next(number for number in range(100) if answers[number].data.endswith(answers[number].body or b"none"))
    data = answers[number].data

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(data[:-1] + bytes([data[-1] ^ 1]))
        peer.close()

    upstream = await stage.upstream(script)
    client = await Client.open(upstream.port)
    client.send(b"POST /v1/x HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    sent = request_of(1, number)
    sent.first = "POST /v1/x"
    await passing.read(client, number, sent)
    client.leave()
    assert (len(passing.tally.changed), passing.tally.crossed) == (1, [])


async def test_what_is_held_is_counted(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    before = Held.by(router)
    client = await stage.client(router)
    client.send(b"POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{")
    await router.until(lambda: Held.by(router).in_flight == 1)
    assert Held.by(router).over(before) >= 3, "the request, and a socket on each side"
    client.leave()
    await router.until(lambda: Held.by(router).over(before) == 0)
