"""Nothing can be smuggled past the parser, into an engine's connection or out of it.

What comes of requests that can be read in two ways is in tests/conversations/test_corpus.py.
"""

import asyncio

import pytest

from tests.rig.client import CHAT, Client, chat, chunked, request
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, answering

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def test_a_second_request_without_a_host_is_refused_too(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 200
    assert (await client.ask(chat())).status == 200
    assert (await client.ask(b"GET /v1/files HTTP/1.1\r\nx-a: 1\r\n\r\n")).status == 400
    assert len(upstream.requests) == 2


async def test_what_is_refused_behind_an_upgrade_is_the_clients_mistake(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    upgrade = request("/v1/files", headers=[("connection", "upgrade"), ("upgrade", "websocket")])
    client.send(upgrade + b"GET /v1/files HTTP/1.1\r\n\r\n")
    assert (await client.answer()).status == 200
    rest, _ = await client.remainder()
    assert rest == b"" or rest.startswith(b"HTTP/1.1 400 ")
    client = await stage.client(router)
    client.send(upgrade)
    assert (await client.answer()).status == 200
    client.send(upgrade)
    assert (await client.answer()).status == 200
    assert (await client.ask(b"GET /v1/files HTTP/1.1\r\n\r\n")).status == 400


async def test_broken_bytes_behind_an_answered_request_get_no_answer_of_their_own(stage: Stage) -> None:
    """A second answer to one request would be taken for the next one's."""
    router = await stage.router(api_keys="alpha")
    client = await stage.client(router)
    client.send(request(CHAT, b"{", headers=[("content-length", "5")]))
    assert (await client.answer()).status == 401
    assert (await client.ask(b"{}  " + request("/livez"))).status == 200
    other = await stage.client(router)
    body = [("transfer-encoding", "chunked")]
    other.send(request("/nowhere", b"", headers=body))
    assert (await other.answer()).status == 404
    other.send(b"zz\r\n" + request("/livez"))
    assert (await other.remainder())[0] == b""


@pytest.mark.parametrize(
    "target",
    ["/v1/../sleep", "/v1/./../sleep", "/v1/x/..", "/v1/.", "/v1/../v1/../metrics", "/inference/../collective_rpc"],
)
async def test_paths_do_not_climb_out_of_what_is_proxied(stage: Stage, target: str) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    answer = await stage.ask(router, request(target, b"{}"))
    assert answer.status == 404
    assert upstream.requests == []


@pytest.mark.parametrize(
    "target", ["/v1/%2e%2e/sleep", "/v1/..%2fsleep", "/%76%31/../sleep", "//sleep", "/v1/;/../sleep", "/V1/../sleep"]
)
async def test_disguised_paths_do_not_reach_an_engines_administration(stage: Stage, target: str) -> None:
    """Whatever the router makes of them, the engine must not be put to sleep."""
    replica = await stage.replica(dev_mode=True)
    router = await stage.router(replica)
    answer = await stage.ask(router, request(target, b""))
    assert answer.status == 404
    assert not replica.state.sleep_level


# From the engine's side


async def test_surplus_bytes_behind_an_answer_reach_nobody(stage: Stage) -> None:
    forged = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"
    upstream = await stage.upstream(answering(OK + forged))
    router = await stage.router(upstream)
    client = await stage.client(router)
    for _ in range(2):
        client.send(chat())
        answer = await client.answer()
        assert b"forged" not in answer.body
        if answer.header("connection") == "close":
            await client.closed()
            client = await stage.client(router)
    assert len(upstream.peers) >= 2, "the connection was not used again"


async def test_a_body_longer_than_announced_is_cut_off_and_its_rest_reaches_nobody(stage: Stage) -> None:
    begun = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await begun.wait()
        peer.send(b"cdHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    client.send(chat())
    assert (await client.head()).header("content-length") == "4"
    assert await client.reader.readexactly(2) == b"ab"
    begun.set()
    rest, _ = await client.remainder()
    assert rest in (b"", b"cd")


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n"


@pytest.mark.parametrize(
    "last", [[b"0\r\n\r", b"\n\r\n"], [b"0\r\n", b"\r\n\r\n"], [b"0", b"\r\n\r\n\n"], [b"0\r", b"\n\r\n\r"]]
)
async def test_empty_lines_behind_chunks_reach_nobody_wherever_they_are_cut(stage: Stage, last: list[bytes]) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(CHUNKED)
        for piece in last:
            await go_on.wait()
            go_on.clear()
            peer.send(piece)
        await peer.gone()

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    client.send(chat())
    answer = await client.head()
    assert await client.chunk(answer) == b"ok"
    go_on.set()
    assert await client.reader.readexactly(len(last[0])) == last[0]
    go_on.set()
    rest, _ = await client.remainder()
    assert rest == b""


@pytest.mark.parametrize(
    "last", [[b"0\r\n\r", b"\n"], [b"0\r\n", b"\r\n"], [b"0", b"\r\n\r\n"], [b"0\r", b"\n\r\n"]]
)
async def test_the_end_of_chunks_may_be_cut_anywhere(stage: Stage, last: list[bytes]) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            for piece in [CHUNKED, *last]:
                peer.send(piece)
                await Client.turn()

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    for _ in range(3):
        assert (await client.ask(chat())).body == b"ok"
    assert len(upstream.peers) == 1


INVALID_ANSWERS = {
    "length and chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "a bad length": b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nok",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a null byte in a value": b"HTTP/1.1 200 OK\r\nx-a: 1\x002\r\ncontent-length: 2\r\n\r\nok",
    "a carriage return in a value": b"HTTP/1.1 200 OK\r\nx-a: 1\rset-cookie: forged\r\ncontent-length: 2\r\n\r\nok",
    "a name with a space": b"HTTP/1.1 200 OK\r\nx a: 1\r\ncontent-length: 2\r\n\r\nok",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"x-a: %b\r\n" % (b"1" * 1000) * 100,
    "a switch of protocols": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    "an empty line in front": b"\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "two empty lines in front": b"\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "empty lines behind an interim head": b"HTTP/1.1 103 x\r\n\r\n\r\n\r\n" + OK,
    "a coding before chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a coding that is not chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a tab behind chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\t\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "chunked, and identity": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\nok",
    "an empty line behind a sized body": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok\r\n",
    "an empty line behind chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n\r\n",
    "a chunk size that is none": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", [pytest.param(sent, id=name) for name, sent in INVALID_ANSWERS.items()])
async def test_an_answer_that_is_no_http_is_asked_for_elsewhere(stage: Stage, sent: bytes) -> None:
    bad = await stage.upstream(answering(sent))
    good = await stage.upstream(answering(OK))
    router = await stage.router(bad, good)
    client = await stage.client(router)
    for _ in range(2):
        answer = await client.ask(chat())
        assert (answer.status, answer.body, answer.replica) == (200, b"ok", router.id_of(good))
    assert len(bad.requests) == 1, "it is ejected"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_heads_with_bare_line_feeds_do_not_break_the_router(stage: Stage, line_end: bytes) -> None:
    lines = [b"HTTP/1.1 200 OK", b"content-length: 2", b"", b"ok"]
    upstream = await stage.upstream(answering(line_end.join(lines)))
    router = await stage.router(upstream)
    answer = await stage.ask(router, chat())
    assert answer.status == 200 if line_end == b"\r\n" else answer.status in (200, 503)


async def test_a_bad_chunk_in_the_middle_of_a_stream_cuts_it(stage: Stage) -> None:
    begun = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        peer.send(chunked(b"data: 1\n\n", last=b""))
        await begun.wait()
        peer.send(b"not a size\r\n" + chunked(b"data: [DONE]\n\n"))
        await peer.gone()

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await client.head()
    assert await client.event(answer) == 1
    begun.set()
    rest, _ = await client.remainder()
    assert b"[DONE]" not in rest
    assert b"upstream_died" in rest
    assert not rest.endswith(b"0\r\n\r\n")
