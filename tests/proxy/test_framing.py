"""Where a body ends: sized and chunked requests, every framing of answers, HTTP/1.0 clients, answers without a body."""

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import CHAT, chat, chunked, request
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, ScriptedUpstream, answering

STREAM = chunked(b"data: 1\n\n", b"data: [DONE]\n\n")
PLAIN = b"data: 1\n\ndata: [DONE]\n\n"
EVENTS = b"content-type: text/event-stream\r\n"


def answer_of(framing: str) -> tuple[bytes, bool]:
    """An answer with the body `PLAIN` in one framing, and whether its end is the connection's."""
    head = b"HTTP/1.1 200 OK\r\n" + EVENTS
    if framing == "chunked":
        return head + b"transfer-encoding: chunked\r\n\r\n" + STREAM, False
    if framing == "sized":
        return head + b"content-length: %d\r\n\r\n" % len(PLAIN) + PLAIN, False
    return head + b"\r\n" + PLAIN, True


async def playing(stage: Stage, framing: str) -> ScriptedUpstream:
    data, closes = answer_of(framing)

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(data)
            if closes:
                peer.close()
                return

    return await stage.upstream(script)


# Requests


async def test_a_chunked_request_reaches_the_engine_whole_and_sized(stage: Stage) -> None:
    upstream = await stage.upstream(answering(answer_of("sized")[0]))
    router = await stage.router(upstream)
    client = await stage.client(router)
    parts = [b'{"model":"m",', b'"messages":', b"[" + b" " * 70_000 + b"]}"]
    answer = await client.ask(request(CHAT, chunked(*parts), headers=[("transfer-encoding", "chunked")]))
    assert answer.status == 200
    received = upstream.requests[0]
    assert received.body == b"".join(parts)
    assert received.header("content-length") == str(len(received.body))
    assert received.all("transfer-encoding") == []


async def test_chunk_extensions_and_trailers_of_a_request_stay_here(stage: Stage) -> None:
    upstream = await stage.upstream(answering(answer_of("sized")[0]))
    router = await stage.router(upstream)
    body = b"2;name=value\r\n{}\r\n0\r\nx-request-id: forged\r\nauthorization: forged\r\n\r\n"
    answer = await stage.ask(router, request(CHAT, body, headers=[("transfer-encoding", "chunked")]))
    assert answer.status == 200
    received = upstream.requests[0]
    assert received.body == b"{}"
    assert b"forged" not in received.raw_head


@pytest.mark.parametrize("framing", ["sized", "chunked"])
async def test_a_request_that_comes_byte_by_byte_is_one_request(stage: Stage, framing: str) -> None:
    upstream = await stage.upstream(answering(answer_of("sized")[0]))
    router = await stage.router(upstream)
    client = await stage.client(router)
    data = chat("slow typist")
    if framing == "chunked":
        data = request(CHAT, chunked(b'{"messages"', b":[]}"), headers=[("transfer-encoding", "chunked")])
    for byte in data:
        client.send(bytes((byte,)))
        await client.turn()
    assert (await client.answer()).status == 200
    assert len(upstream.requests) == 1


async def test_an_empty_body_is_sent_as_an_empty_body(stage: Stage) -> None:
    upstream = await stage.upstream(answering(answer_of("sized")[0]))
    router = await stage.router(upstream)
    await stage.ask(router, request("/v1/responses/resp_1/cancel", b""))
    assert upstream.requests[0].header("content-length") == "0"


# Answers


@pytest.mark.parametrize("framing", ["chunked", "sized", "until-close"])
async def test_every_framing_of_an_answer_gets_through_and_the_client_connection_lives_on(
    stage: Stage, framing: str
) -> None:
    upstream = await playing(stage, framing)
    router = await stage.router(upstream)
    client = await stage.client(router)
    for _ in range(3):
        answer = await client.ask(chat())
        assert (answer.status, answer.body) == (200, PLAIN)
        assert answer.header("connection") is None
    assert len(upstream.peers) == (3 if framing == "until-close" else 1)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("end", [b"content-length: 0\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"\r\n"])
async def test_an_empty_body_ends_once_in_every_framing(stage: Stage, end: bytes, version: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n" + end)
        await peer.writer.drain()
        if end == b"\r\n":
            peer.close()
        else:
            await peer.gone()

    router = await stage.router(await stage.upstream(script))
    client = await stage.client(router)
    answer = await client.ask(chat(version=version))
    assert (answer.status, answer.body) == (200, b"")
    if version == "1.1":
        assert (await client.ask(request("/livez"))).status == 200, "nothing was left on the connection"


@pytest.mark.parametrize("framing", ["chunked", "sized", "until-close"])
async def test_an_http_1_0_client_gets_a_body_without_chunks_and_a_closed_connection(
    stage: Stage, framing: str
) -> None:
    upstream = await playing(stage, framing)
    router = await stage.router(upstream)
    client = await stage.client(router)
    answer = await client.ask(chat(version="1.0", headers=[("connection", "keep-alive")]))
    assert (answer.status, answer.body) == (200, PLAIN)
    assert answer.header("transfer-encoding") is None
    assert answer.header("connection") == "close"
    await client.closed()


async def test_an_http_1_0_client_gets_an_engines_stream_event_by_event(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    answer = await stage.ask(router, chat(version="1.0", stream=True, max_tokens=30))
    assert answer.events()[-1] == "[DONE]"
    assert len(answer.events()) > 10


@pytest.mark.parametrize("fault", [FaultKind.CLOSE_DELIMITED, FaultKind.SIZED_STREAM, FaultKind.TRAILERS])
async def test_an_engine_behind_another_proxy_frames_otherwise(stage: Stage, fault: FaultKind) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(fault))
    router = await stage.router(replica)
    client = await stage.client(router)
    for stream in (False, True):
        answer = await client.ask(chat(max_tokens=5, stream=stream))
        assert answer.status == 200
        assert b'"finish_reason":"length"' in answer.body
    assert router.records.finished[-1].usage.finish_reason == "length"


@pytest.mark.parametrize("size", [1_000, 8_000_000])
async def test_an_engine_may_answer_before_it_has_read_the_whole_body(stage: Stage, size: int) -> None:
    """It refuses a body by its head. What it did not read is not sent on, and its connection serves nobody else."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.reader.readuntil(b"\r\n\r\n")
            peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
            if size > 1_000_000:
                await peer.gone()
                return
            await peer.reader.readexactly(size)

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    for number in (1, 2):
        answer = await client.ask(request("/v1/audio/transcriptions", b"x" * size))
        assert (answer.status, answer.body) == (413, b"no")
        if size > 1_000_000:
            assert len(upstream.peers) == number
            await upstream.peers[-1].left.wait()


@pytest.mark.parametrize("status", [100, 102, 103])
async def test_interim_answers_stay_here(stage: Stage, status: int) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.INTERIM, status=status))
    router = await stage.router(replica)
    client = await stage.client(router)
    for stream in (False, True, False):
        answer = await client.ask(chat(stream=stream))
        assert answer.status == 200
        assert answer.header("link") is None
    assert replica.open_connections == 1


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_have_none_and_the_next_answer_follows(stage: Stage, status: int) -> None:
    first = b"HTTP/1.1 %d Nothing\r\netag: x\r\ncontent-length: 17\r\n\r\n" % status
    if status == 204:
        first = first.replace(b"content-length: 17\r\n", b"")
    upstream = await stage.upstream(answering(first, answer_of("sized")[0]))
    router = await stage.router(upstream)
    client = await stage.client(router)
    answer = await client.ask(request("/v1/files/1", method="DELETE"))
    assert (answer.status, answer.header("etag"), answer.header("transfer-encoding")) == (status, "x", None)
    assert (await client.ask(chat())).body == PLAIN


@pytest.mark.parametrize("length", [b"content-length: 1234\r\n", b"transfer-encoding: chunked\r\n", b""])
async def test_an_answer_to_head_has_the_headers_and_no_body(stage: Stage, length: bytes) -> None:
    head_answer = b"HTTP/1.1 200 OK\r\nx-kind: head\r\n" + length + b"\r\n"
    upstream = await stage.upstream(answering(head_answer))
    router = await stage.router(upstream)
    client = await stage.client(router)
    for _ in range(2):
        answer = await client.ask(request("/v1/files/1", method="HEAD"))
        assert (answer.status, answer.header("x-kind")) == (200, "head")
        if b"1234" in length:
            assert answer.header("content-length") == "1234"
    client.send(request("/livez"))
    assert (await client.answer()).status == 200, "nothing of a body was left on the connection"


async def test_the_routers_own_error_to_head_has_no_body(stage: Stage) -> None:
    router = await stage.router()
    client = await stage.client(router)
    answer = await client.ask(request("/v1/files/1", method="HEAD"))
    assert answer.status == 503
    assert int(answer.header("content-length") or 0) > 0
    assert (await client.ask(request("/livez"))).status == 200


# Expect: 100-continue


async def test_a_client_that_waits_for_100_continue_gets_it_before_it_sends_its_body(stage: Stage) -> None:
    upstream = await stage.upstream(answering(answer_of("sized")[0]))
    router = await stage.router(upstream)
    client = await stage.client(router)
    body = b'{"model":"m","messages":[]}'
    headers = [("Expect", "100-Continue"), ("content-length", str(len(body)))]
    client.send(request(CHAT, b"", headers=headers))
    assert (await client.head()).status == 100
    assert not upstream.peers
    client.send(body)
    assert (await client.answer()).body == PLAIN
    assert upstream.requests[0].body == body
    assert upstream.requests[0].all("expect") == [], "the body is here already: the engine is not asked"


async def test_a_body_too_large_is_refused_before_it_is_sent(stage: Stage) -> None:
    router = await stage.router(max_body_bytes=2_000)
    client = await stage.client(router)
    client.send(request(CHAT, b"", headers=[("expect", "100-continue"), ("content-length", "2001")]))
    assert (await client.head()).status == 413


async def test_an_http_1_0_client_is_never_sent_100_continue(stage: Stage) -> None:
    upstream = await stage.upstream(answering(answer_of("sized")[0]))
    router = await stage.router(upstream)
    client = await stage.client(router)
    body = b'{"messages":[]}'
    headers = [("expect", "100-continue"), ("content-length", str(len(body)))]
    client.send(request(CHAT, b"", headers=headers, version="1.0"))
    await client.turn()
    client.send(body)
    assert (await client.answer()).status == 200


async def test_an_upgrade_that_is_not_offered_is_answered_as_a_plain_request(stage: Stage) -> None:
    """Java's HTTP client asks every http:// server for h2c, with its first POST."""
    upstream = await stage.upstream(answering(answer_of("sized")[0]))
    router = await stage.router(upstream)
    headers = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQ")]
    client = await stage.client(router)
    answer = await client.ask(chat(headers=headers))
    assert (answer.status, answer.body) == (200, PLAIN)
    assert b"upgrade" not in upstream.requests[0].raw_head.lower()
    assert b"hello there" in upstream.requests[0].body
