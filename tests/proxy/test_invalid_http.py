"""What is no HTTP gets 400 in OpenAI's form, and nothing falls over."""

import random

import pytest

from tests.rig.client import CHAT, chat, request
from tests.rig.stage import Stage


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\nbroken\r\n\r\n",
        b"GET /%s HTTP/1.1\r\n" % (b"\x80\xff" * 10),
        b"\r\n\r\n\r\nBOGUS / HTTP/1.1\r\n\r\n",
    ],
    ids=["words", "TLS", "HTTP/2", "header", "target", "method"],
)
async def test_invalid_http_is_refused_in_openais_form(stage: Stage, sent: bytes) -> None:
    router = await stage.router()
    client = await stage.client(router)
    answer = await client.ask(sent)
    assert answer.status == 400
    assert answer.error["code"] == "bad_request"
    assert answer.header("content-type") == "application/json"
    assert answer.header("connection") == "close"
    await client.closed()


async def test_invalid_http_hurts_no_replica_and_no_other_client(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    other = await stage.client(router)
    assert (await other.ask(chat())).status == 200
    bad = await stage.client(router)
    assert (await bad.ask(b"nonsense\r\n\r\n")).status == 400
    assert (await other.ask(chat())).status == 200
    assert router.books(replica).health.up
    assert len(replica.requests) == 2


async def test_a_connection_that_says_nothing_or_half_a_request_costs_nothing(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    for sent in (b"", b"POST /v1/ch", b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{"):
        client = await stage.client(router)
        client.send(sent)
        await client.turn()
        client.leave()
    assert (await stage.ask(router, chat())).status == 200
    assert len(replica.requests) == 1


async def test_random_damage_to_requests_never_breaks_the_router(stage: Stage) -> None:
    """Bytes flipped, cut and doubled at random: any answer or none, but the next client is served."""
    chance = random.Random(20)
    replica = await stage.replica()
    router = await stage.router(replica)
    whole = chat("some text", headers=[("x-session-id", "s"), ("expect", "100-continue")])
    whole += request(CHAT, b"5\r\n{    \r\n1\r\n}\r\n0\r\n\r\n", headers=[("transfer-encoding", "chunked")])
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place : place + chance.randint(1, 30)]
                case _:
                    data[place:place] = data[place : place + chance.randint(1, 30)]
        client = await stage.client(router)
        client.send(bytes(data))
        await client.turn()
        client.leave()
    assert (await stage.ask(router, chat())).status == 200
    assert router.books(replica).health.up
