"""What the client sends is what the engine gets, and what the engine answers is what the client gets: every byte."""

import json

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import CHAT, Client, chat, chunked, request
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, answering

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"

ODD_BODIES = {
    "unknown fields, roles and parts": (
        b'{"model":"m","messages":[{"role":"critic","content":[{"type":"hologram","data":{"x":[1,2]}}],"mood":"dark"}],'
        b'"not_in_any_schema":{"deep":[null]},"top_k":-1}'
    ),
    "spacing and order": b'  {\n\t"messages" : [ {"content":"hi" , "role":"user"} ] ,\r\n "model":"m" }\n\n',
    "a field twice": b'{"model":"a","model":"b","messages":[],"messages":[{"role":"user","content":"hi"}]}',
    "numbers as written": (
        b'{"model":"m","messages":[],"temperature":0.10000000000000000555,'
        b'"seed":123456789012345678901234567890,"top_p":1E0}'
    ),
    "escapes as written": b'{"model":"m","messages":[{"role":"user","content":"\\u00e9\\/\\ud83d\\ude00\\n"}]}',
    "a lone surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}],"session_id":"\\udc00"}',
    "UTF-8 and NUL": '{"model":"m","messages":[{"role":"user","content":"é 漢 😀 \x00"}]}'.encode(),
    "not UTF-8": b'{"model":"m","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "wrong types": b'{"model":7,"messages":{"role":1},"stream":"yes","session_id":[1],"prompt_cache_key":{},"tools":3}',
    "null everywhere": b'{"model":null,"messages":null,"stream":null,"tools":null}',
    "null among the messages": b'{"model":"m","messages":[null,1,"x",[]]}',
    "not an object": b"[1,2,3]",
    "not JSON": b'{"model": "m", "messages": [}',
    "cut off": b'{"model":"m","messages":[{"role":"user","content":"hel',
    "deep": b'{"model":"m","messages":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "bytes": bytes(range(256)) * 8,
    "empty": b"",
    "a byte order mark": b'\xef\xbb\xbf{"model":"m","messages":[]}',
    "over a block": json.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 5_000}]}).encode(),
}

PATHS = [
    "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions", "/v1/responses", "/v1/messages",
    "/v1/responses/resp_1/cancel", "/v1/messages/count_tokens", "/v1/embeddings", "/v1/score", "/v1/rerank",
    "/v1/systemone", "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/made/up/next/year", "/v2/rerank",
    "/v2/embed", "/pooling", "/classify", "/score", "/rerank", "/tokenize", "/detokenize", "/invocations",
    "/generative_scoring", "/inference/v1/generate", "/render", "/derender",
]  # fmt: skip


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in ODD_BODIES.items()])
async def test_any_body_reaches_the_engine_byte_for_byte(stage: Stage, body: bytes) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    for path in (CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/anything"):
        answer = await client.ask(request(path, body))
        assert answer.status == 200, path
        assert upstream.requests[-1].body == body, path


async def test_every_inference_path_goes_through_with_its_query(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    client = await stage.client(router)
    for path in PATHS:
        target = f"{path}?a=1&b=%2F..%2F&c"
        assert (await client.ask(request(target, b"{}"))).body == b"{}", path
        assert (upstream.requests[-1].method, upstream.requests[-1].target) == ("POST", target)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_methods_pass(stage: Stage, method: str) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    assert (await stage.ask(router, request("/v1/responses/resp_1", method=method))).body == b"{}"
    received = upstream.requests[-1]
    assert (received.method, received.target, received.body) == (method, "/v1/responses/resp_1", b"")
    assert received.header("content-length") is None


async def test_a_path_in_absolute_form_passes_as_a_path(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    assert (await stage.ask(router, request("http://elsewhere.test/v1/chat/completions?x=1", b"{}"))).status == 200
    assert upstream.requests[0].target == "/v1/chat/completions?x=1"
    assert upstream.requests[0].header("host") == f"127.0.0.1:{upstream.port}"


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/sleep", "/wake_up", "/reset_prefix_cache", "/pause", "/collective_rpc", "/server_info", "/load"],
)
async def test_paths_that_administer_an_engine_are_not_for_clients_of_a_fleet(stage: Stage, path: str) -> None:
    replica = await stage.replica(dev_mode=True)
    router = await stage.router(replica)
    answer = await stage.ask(router, request(path, b"{}"))
    assert answer.status == 404
    assert answer.error["code"] == 404
    assert not replica.requests


async def test_a_chunked_answer_comes_back_with_the_very_chunks_of_the_engine(stage: Stage) -> None:
    framed = chunked(b"data: {}\n\n", b"data: " + b"x" * 20_000 + b"\n\n", b"\n", b"data: [DONE]\n\n")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    upstream = await stage.upstream(answering(head + framed))
    router = await stage.router(upstream)
    answer = await stage.ask(router, chat())
    assert answer.raw_body == framed
    assert answer.header("transfer-encoding") == "chunked"
    assert answer.header("content-length") is None


async def test_answers_split_anywhere_come_back_whole(stage: Stage) -> None:
    """The engine's bytes arrive one at a time, an interim head and trailers among them."""
    framed = chunked(b"data: 1\n\n", b"data: 2\n\n", last=b"0\r\nx-end: yes\r\n\r\n")
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-kind: split\r\ntransfer-encoding: chunked\r\n\r\n"

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            for byte in interim + head + framed:
                peer.send(bytes((byte,)))
                await peer.writer.drain()
                await Client.turn()

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    for _ in range(2):
        answer = await client.ask(chat())
        assert (answer.status, answer.header("x-kind")) == (200, "split")
        assert answer.raw_body == framed
        assert answer.trailers == [("x-end", "yes")]
    assert len(upstream.peers) == 1


@pytest.mark.parametrize(
    "status", [200, 201, 207, 299, 400, 401, 404, 405, 409, 418, 422, 451, 499, 500, 501, 511, 599]
)
async def test_the_engines_status_type_and_error_body_come_back_as_they_are(stage: Stage, status: int) -> None:
    body = b'{"error": {"message": "the engine\'s own words","code":  %d}}' % status
    head = b"HTTP/1.1 %d Whatever\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n\r\n"
    upstreams = [await stage.upstream(answering(head % (status, len(body)) + body)) for _ in range(2)]
    router = await stage.router(*upstreams)
    answer = await stage.ask(router, chat())
    assert (answer.status, answer.body) == (status, body)
    assert answer.header("content-type") == "application/problem+json"
    assert sum(len(upstream.requests) for upstream in upstreams) == 1


async def test_a_malformed_body_gets_the_engines_own_opinion_and_hurts_no_replica(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    answer = await stage.ask(router, request(CHAT, b'{"model": "m", "messages": [}'))
    direct = await stage.ask(replica, request(CHAT, b'{"model": "m", "messages": [}'))
    assert (answer.status, answer.body) == (direct.status, direct.body)
    assert answer.status == 400
    assert router.books(replica).health.up


async def test_audio_passes_unparsed(stage: Stage) -> None:
    """Multipart bodies, bytes that look like their own end included."""
    replica = await stage.replica()
    router = await stage.router(replica)
    parts = [
        b'--edge\r\ncontent-disposition: form-data; name="model"\r\n\r\nsim-model\r\n',
        b'--edge\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/wav\r\n\r\n',
        b"RIFF\x00\r\n0\r\n\r\n--edge-not\r\n" + bytes(range(256)) * 300 + b"\r\n--edge--\r\n",
    ]
    body = b"".join(parts)
    kind = [("content-type", "multipart/form-data; boundary=edge")]
    answer = await stage.ask(router, request("/v1/audio/transcriptions", body, headers=kind))
    assert answer.status == 200
    assert answer.json()["text"]
    assert answer.reason == "unknown-shape"
    assert replica.requests[-1].body == body
    assert replica.requests[-1].header(b"content-type") == b"multipart/form-data; boundary=edge"


async def test_a_whole_answer_of_a_simulated_engine_is_the_one_it_gives_directly(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    ident = [("x-request-id", "same")]
    direct = await stage.client(replica)
    for fields in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}):
        await direct.ask(chat("warm up " * 200, headers=ident, **fields))  # so that both find the same cache
        one = await direct.ask(chat("warm up " * 200, headers=ident, **fields))
        other = await stage.ask(router, chat("warm up " * 200, headers=ident, **fields))
        same = [line for line in one.raw_body.split(b",") if not line.startswith(b'"created"')]
        assert [line for line in other.raw_body.split(b",") if not line.startswith(b'"created"')] == same


async def test_the_engines_answer_in_two_chunks_is_not_made_one(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.CHUNKED_JSON))
    router = await stage.router(replica)
    answer = await stage.ask(router, chat())
    assert len(answer.chunks) == 2
    assert answer.json()["object"] == "chat.completion"
