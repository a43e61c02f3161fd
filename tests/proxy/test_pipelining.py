"""Several requests on one connection before the first is answered: each gets its answer, in order."""

import json

import pytest

from tests.rig.client import CHAT, chat, chunked, request
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, ScriptedUpstream

LOCAL = request("/livez")
MODELS = request("/v1/models")


async def echo(peer: Peer) -> None:
    """Answer each request with its own body."""
    while True:
        received = await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(received.body), received.body))


def numbered(number: int) -> bytes:
    return request(CHAT, {"number": number})


async def test_proxied_requests_are_answered_in_order(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(echo))
    client = await stage.client(router)
    client.send(b"".join(numbered(number) for number in range(40)))
    for number in range(40):
        assert (await client.answer()).json() == {"number": number}


@pytest.mark.parametrize("first", ["proxied", "local"])
async def test_proxied_and_local_requests_mixed_are_answered_in_order(stage: Stage, first: str) -> None:
    router = await stage.router(await stage.upstream(echo))
    client = await stage.client(router)
    kinds = [numbered(1), LOCAL, MODELS, numbered(2), numbered(3), LOCAL, LOCAL, numbered(4), request("/nowhere")]
    expected = [b'{"number": 1}', b"", b'{"object":"list","data":[]}', b'{"number": 2}', b'{"number": 3}', b"", b""]
    expected.append(b'{"number": 4}')
    if first == "local":
        kinds, expected = [LOCAL, *kinds], [b"", *expected]
    client.send(b"".join(kinds))
    for body in expected:
        answer = await client.answer()
        assert (answer.status, answer.body) == (200, body)
    assert (await client.answer()).status == 404


async def test_a_local_request_does_not_overtake_a_slow_answer(stage: Stage) -> None:
    held = [b""]

    async def script(peer: Peer) -> None:
        received = await peer.request()
        held[0] = received.body

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    client.send(numbered(1) + LOCAL + numbered(2))
    await router.until(lambda: bool(held[0]))
    peer = await upstream.peer()
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfirst")
    assert (await client.answer()).body == b"first"
    assert (await client.answer()).status == 200
    second = await peer.request()
    assert json.loads(second.body) == {"number": 2}, "the second one goes only when it is its turn"
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond")
    assert (await client.answer()).body == b"second"


async def silent(stage: Stage) -> ScriptedUpstream:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    return await stage.upstream(script)


@pytest.mark.parametrize(
    "behind", [[], [chat("two")], [LOCAL], [LOCAL, chat("two"), LOCAL]], ids=["0", "1", "local", "3"]
)
async def test_a_client_that_leaves_is_noticed_with_requests_in_line(stage: Stage, behind: list[bytes]) -> None:
    """During a silent prefill, whatever else was sent behind the request."""
    upstream = await silent(stage)
    router = await stage.router(upstream)
    client = await stage.client(router)
    client.send(b"".join([chat("one"), *behind]))
    peer = await upstream.peer()
    await router.until(lambda: len(peer.requests) == 1)
    client.leave()
    await router.idle()
    assert len(upstream.requests) == 1, "nothing in line was sent after the client had left"


async def test_a_body_in_line_that_is_too_large_is_refused_in_its_turn(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(echo), max_body_bytes=1024)
    client = await stage.client(router)
    client.send(numbered(1) + request(CHAT, b"x" * 1025) + numbered(2))
    assert (await client.answer()).json() == {"number": 1}
    answer = await client.answer()
    assert (answer.status, answer.header("connection")) == (413, "close")
    await client.closed()


@pytest.mark.parametrize(
    "requests",
    [[LOCAL], [numbered(1)], [numbered(1), LOCAL], [LOCAL, numbered(1)], [numbered(1), numbered(2)]],
    ids=["local", "proxied", "proxied-local", "local-proxied", "proxied-proxied"],
)
async def test_garbage_behind_requests_does_not_disturb_their_answers(stage: Stage, requests: list[bytes]) -> None:
    router = await stage.router(await stage.upstream(echo))
    client = await stage.client(router)
    client.send(b"".join(requests) + b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    for _ in requests:
        assert (await client.answer()).status == 200
    rest, _ = await client.remainder()
    assert rest == b"" or rest.startswith(b"HTTP/1.1 400")


async def test_a_broken_body_in_line_is_refused_in_its_turn(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(echo))
    client = await stage.client(router)
    broken = request(CHAT, b"zz\r\nnot a size\r\n", headers=[("transfer-encoding", "chunked")])
    client.send(numbered(1) + broken)
    assert (await client.answer()).json() == {"number": 1}
    assert (await client.answer()).status == 400
    await client.closed()


async def test_chunked_and_sized_bodies_alternate(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(echo))
    client = await stage.client(router)
    pieces = request(CHAT, chunked(b'{"number"', b": 7}"), headers=[("transfer-encoding", "chunked")])
    client.send(numbered(1) + pieces + numbered(2) + pieces)
    for number in (1, 7, 2, 7):
        assert (await client.answer()).json() == {"number": number}
