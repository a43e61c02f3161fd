"""JSON nested deeper than any stack: an engine's business, and no mistake of the router's wherever it is read again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from router.adapters.kv_events.decode import BatchError, Reader
from router.adapters.redis_store import encoding
from tests.rig.client import request
from tests.rig.stage import Stage

DEPTH = 20_000

DEEP = {"lists": b"[" * DEPTH + b"]" * DEPTH, "objects": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH}

LONG = b'"role":"user","content":"%b"' % (b"words of a prompt " * 100)

PLACES = {
    "unknown field": b'{"model":"%b","messages":[{%b}],"x":DEEP}',
    "content": b'{"model":"%b","messages":[{%b},{"role":"user","content":DEEP}]}',
    "tools": b'{"model":"%b","messages":[{%b}],"tools":DEEP}',
    "one tool": b'{"model":"%b","messages":[{%b}],"tools":[{"type":"function","function":DEEP}]}',
    "tool calls": b'{"model":"%b","messages":[{%b},{"role":"assistant","tool_calls":DEEP}]}',
    "session": b'{"model":"%b","messages":[{%b}],"session_id":DEEP,"user":DEEP}',
    "options": b'{"model":"%b","messages":[{%b}],"stream_options":DEEP,"response_format":DEEP}',
    "system": b'{"model":"%b","messages":[{%b}],"system":DEEP,"input":DEEP,"prompt":DEEP}',
    "end": b'{"model":"%b","messages":[{%b}]}DEEP',
}

PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/v1/embeddings", "/v1/unknown")


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("place", PLACES)
async def test_the_engine_says_what_it_thinks_of_it(
    stage: Stage, kind: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, alias=("short=sim-model",), touch=True, warm_up_tokens=1_000)
    client = await stage.client(router)
    for model in (b"sim-model", b"short"):
        body = (PLACES[place] % (model, LONG)).replace(b"DEEP", DEEP[kind])
        for path in PATHS:
            answer = await client.ask(request(path, body))
            assert answer.status < 500, (path, model, answer.body)
    admin = await router.admin()
    for path in PATHS:
        explained = await admin.post("/api/explain", params={"path": path}, content=body)
        assert explained.status_code in (200, 400)
    await router.idle()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert router.books(replica).health.up


DEEP_MESSAGES = (
    b"\x91" * DEPTH + b"\x90",
    b"\x95" + b"\x91" * DEPTH + b"\x90",
    b"\x93\x01\x02" + b"\x91" * DEPTH + b"\x90",
)


@pytest.mark.parametrize("data", DEEP_MESSAGES, ids=["all", "first", "last"])
def test_what_comes_by_zmq_and_redis_is_refused(data: bytes) -> None:
    with pytest.raises(BatchError):
        Reader().read(data)
    assert encoding.unpack(data) is None


async def test_an_engine_that_lists_its_models_so_is_read_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    listed = b'{"data":' + DEEP["lists"] + b"}"

    async def script(peer: Any) -> None:
        while True:
            await peer.request()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            peer.send(head % len(listed) + listed)

    upstream = await stage.upstream(script)
    await stage.router(upstream, watched=True, models_interval_s=0.5)
    for serial in range(1, 6):
        await upstream.peer(serial)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
