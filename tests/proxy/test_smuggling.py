"""Nothing can be smuggled past the parser, into an engine's connection or out of it."""

import asyncio

import pytest

from tests.rig.client import CHAT, Client, chat, chunked, request
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, answering

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
HIDDEN = b"POST /sleep HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


def raw(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"POST {CHAT} HTTP/1.1", "host: x", *lines, "", ""]).encode("latin-1") + body


REFUSED = {
    "length and chunks": raw("content-length: 4", "transfer-encoding: chunked", body=b"0\r\n\r\n" + HIDDEN),
    "chunks and length": raw("transfer-encoding: chunked", "content-length: 4", body=b"0\r\n\r\n" + HIDDEN),
    "two lengths": raw("content-length: 2", "content-length: 3", body=b"{}x"),
    "a negative length": raw("content-length: -1"),
    "a length with a sign": raw("content-length: +2", body=b"{}"),
    "a length in hex": raw("content-length: 0x2", body=b"{}"),
    "a list of lengths": raw("content-length: 2, 2", body=b"{}"),
    "a huge length": raw("content-length: 99999999999999999999999"),
    "an unknown coding last": raw("transfer-encoding: chunked, identity", body=b"0\r\n\r\n" + HIDDEN),
    "a coding that is not chunked": raw("transfer-encoding: xchunked", body=b"0\r\n\r\n" + HIDDEN),
    "a chunk size that is none": raw("transfer-encoding: chunked", body=b"zz\r\n{}\r\n0\r\n\r\n"),
    "a negative chunk size": raw("transfer-encoding: chunked", body=b"-2\r\n{}\r\n0\r\n\r\n"),
    "a huge chunk size": raw("transfer-encoding: chunked", body=b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
    "a chunk longer than its size": raw("transfer-encoding: chunked", body=b"2\r\n{}}}\r\n0\r\n\r\n" + HIDDEN),
    "a chunk line ended by a bare line feed": raw("transfer-encoding: chunked", body=b"2\n{}\r\n0\r\n\r\n" + HIDDEN),
    "a name with a space": raw("content-length : 2", body=b"{}"),
    "a name with a null byte": raw("x\x00y: 1", "content-length: 2", body=b"{}"),
    "a bare carriage return in a value": raw("x-a: 1\rtransfer-encoding: chunked", "content-length: 2", body=b"{}"),
    "a null byte in a value": raw("x-a: 1\x002", "content-length: 2", body=b"{}"),
    "a line that is no header": raw("no colon here", "content-length: 2", body=b"{}"),
    "a folded first line": f"POST\r\n {CHAT} HTTP/1.1\r\n\r\n".encode(),
    "a space in the target": b"POST /v1/chat /completions HTTP/1.1\r\nhost: x\r\n\r\n",
    "an empty length": raw("content-length:", body=b"{}"),
    "the same length twice": raw("content-length: 2", "content-length: 2", body=b"{}"),
    "a length with a vertical tab": raw("content-length: \x0b2", body=b"{}"),
    "a folded length": raw("content-length:\r\n 2", body=b"{}"),
    "a folded value": raw("x-a: one\r\n two", "content-length: 2", body=b"{}"),
    "a coding before chunked": raw("transfer-encoding: gzip, chunked", body=b"0\r\n\r\n" + HIDDEN),
    "identity, and chunked": raw("transfer-encoding: identity", "transfer-encoding: chunked", body=b"0\r\n\r\n"),
    "chunked, and identity": raw("transfer-encoding: chunked", "transfer-encoding: identity", body=b"0\r\n\r\n"),
    "chunked twice": raw("transfer-encoding: chunked, chunked", body=b"0\r\n\r\n"),
    "chunked with a parameter": raw("transfer-encoding: chunked;q=1", body=b"0\r\n\r\n"),
    "quoted chunked": raw('transfer-encoding: "chunked"', body=b"0\r\n\r\n"),
    "an empty coding": raw("transfer-encoding:", body=b"0\r\n\r\n"),
    "a coding and an upgrade": raw(
        "connection: upgrade", "upgrade: h2c", "transfer-encoding: gzip", body=b"0\r\n\r\n" + HIDDEN
    ),
    "chunks in HTTP/1.0": raw("transfer-encoding: chunked", body=b"0\r\n\r\n").replace(b"/1.1", b"/1.0", 1),
    "a chunk size with 0x": raw("transfer-encoding: chunked", body=b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk size with a sign": raw("transfer-encoding: chunked", body=b"+2\r\n{}\r\n0\r\n\r\n"),
    "a chunk size with an underscore": raw("transfer-encoding: chunked", body=b"0_2\r\n{}\r\n0\r\n\r\n"),
    "a chunk size with a space": raw("transfer-encoding: chunked", body=b"2 \r\n{}\r\n0\r\n\r\n"),
    "an extension with a bare line feed": raw("transfer-encoding: chunked", body=b"2;a\n{}\r\n0\r\n\r\n"),
    "an extension with a bare carriage return": raw("transfer-encoding: chunked", body=b"2;a\rb\r\n{}\r\n0\r\n\r\n"),
    "a length in a trailer": raw("transfer-encoding: chunked", body=b"2\r\n{}\r\n0\r\ncontent-length: 9\r\n\r\n"),
    "an end of chunks by line feeds": raw("transfer-encoding: chunked", body=b"2\r\n{}\r\n0\n\n"),
    "a bare line feed between fields": raw("x-a: 1\nauthorization: forged", "content-length: 2", body=b"{}"),
    "line feeds only": raw("content-length: 2", body=b"{}").replace(b"\r\n", b"\n"),
    "a control character in a value": raw("x-a: \x1b[31m", "content-length: 2", body=b"{}"),
    "an empty name": raw(": 1", "content-length: 2", body=b"{}"),
    "HTTP/0.9": f"GET {CHAT}\r\n\r\n".encode(),
    "HTTP/0.9 by name": f"GET {CHAT} HTTP/0.9\r\n\r\n".encode(),
    "HTTP/2.0 by name": f"POST {CHAT} HTTP/2.0\r\nhost: x\r\n\r\n".encode(),
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an authority for a target": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: x\r\n\r\n" + HIDDEN,
    "an asterisk for a target": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "a target without a path": b"GET http://x HTTP/1.1\r\nhost: x\r\n\r\n",
    "two hosts": raw("host: y", "content-length: 2", body=b"{}"),
    "the same host twice": raw("host: x", "content-length: 2", body=b"{}"),
    "no host": raw("content-length: 2", body=b"{}").replace(b"host: x\r\n", b""),
    "a host with a path": raw("content-length: 2", body=b"{}").replace(b"host: x", b"host: x/y"),
    "a host with a user": raw("content-length: 2", body=b"{}").replace(b"host: x", b"host: a@x"),
    "a host with a space": raw("content-length: 2", body=b"{}").replace(b"host: x", b"host: x y"),
    "a port that is no number": raw("content-length: 2", body=b"{}").replace(b"host: x", b"host: x:8o"),
    "an unknown version": f"POST {CHAT} HTTP/3.7\r\nhost: x\r\n\r\n".encode(),
}


@pytest.mark.parametrize("sent", [pytest.param(sent, id=name) for name, sent in REFUSED.items()])
async def test_a_request_that_can_be_read_in_two_ways_is_refused(stage: Stage, sent: bytes) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    answer = await client.ask(sent)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert answer.header("connection") == "close"
    await client.closed()
    assert upstream.requests == []


PASSED = {
    "an extension of a chunk": raw("transfer-encoding: chunked", body=b"2;name=value\r\n{}\r\n0\r\n\r\n"),
    "a trailer": raw("transfer-encoding: chunked", body=b"2\r\n{}\r\n0\r\nauthorization: forged\r\n\r\n"),
    "zeros before a chunk size": raw("transfer-encoding: chunked", body=b"0" * 40 + b"2\r\n{}\r\n0\r\n\r\n"),
    "zeros before a length": raw("content-length: 0002", body=b"{}"),
    "spaces behind a length": raw("content-length: 2  ", body=b"{}"),
    "chunked in capitals": raw("transfer-encoding: CHUNKED ", body=b"2\r\n{}\r\n0\r\n\r\n"),
    "a whole URL for a target": raw("content-length: 2", body=b"{}").replace(b"/v1", b"http://a:b@c.example:1/v1", 1),
    "empty lines before it": b"\r\n\r\n" + raw("content-length: 2", body=b"{}"),
    "an upgrade": raw("connection: upgrade", "upgrade: websocket", "content-length: 2", body=b"{}"),
    "an IPv6 host": raw("content-length: 2", body=b"{}").replace(b"host: x", b"host: [fe80::1%25eth0]:8000"),
    "spaces behind a host": raw("content-length: 2", body=b"{}").replace(b"host: x", b"host: \t x:1 \t "),
    "an empty host": raw("content-length: 2", body=b"{}").replace(b"host: x", b"host:"),
    "a host with an underscore": raw("content-length: 2", body=b"{}").replace(b"host: x", b"Host: my_router.x:80"),
}


@pytest.mark.parametrize("sent", [pytest.param(sent, id=name) for name, sent in PASSED.items()])
async def test_odd_but_plain_requests_go_on_written_anew(stage: Stage, sent: bytes) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    assert (await client.ask(sent)).status == 200
    (received,) = upstream.requests
    assert received.raw_head.startswith(f"POST {CHAT} HTTP/1.1\r\n".encode())
    assert received.all("host") == [f"127.0.0.1:{upstream.port}"]
    assert (received.all("content-length"), received.body) == (["2"], b"{}")
    for name in ("transfer-encoding", "authorization", "upgrade", "connection"):
        assert received.all(name) == []
    assert (await client.ask(chat())).status == 200


async def test_a_second_request_without_a_host_is_refused_too(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 200
    assert (await client.ask(chat())).status == 200
    assert (await client.ask(b"GET /v1/files HTTP/1.1\r\nx-a: 1\r\n\r\n")).status == 400
    assert len(upstream.requests) == 2


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
