"""The simulated server's HTTP: connections, framing, keys, bodies of all kinds; starting and stopping."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.sim.faults import Fault, FaultKind
from router.sim.server import SimOptions, SimReplica, serve_many
from tests.sim.wire import CHAT, DEADLINE_S, MESSAGES, Wire, ask, chat, on_both_loops, request

FAST = SimOptions(time_scale=1_000)


async def test_ids_come_from_the_client() -> None:
    named = {"x-request-id": 'a"b'}
    async with SimReplica(SimOptions(time_scale=1_000, request_id_headers=True)) as replica:
        body = {"messages": MESSAGES, "max_tokens": 2}
        given = await ask(replica.port, request(CHAT, body | {"stream": True}, headers=named))
        in_body = await ask(replica.port, request(CHAT, body | {"request_id": "mine"}))
        made = await ask(replica.port, request("/health"))
    assert given.data()[0]["id"] == 'chatcmpl-a"b'
    assert given.headers["x-request-id"] == 'a"b'
    assert in_body.json()["id"] == "chatcmpl-mine"
    assert len(made.headers["x-request-id"]) >= 16


@on_both_loops
async def test_idle_connections_are_closed() -> None:
    async with SimReplica(SimOptions(keep_alive_s=0.05)) as replica, await Wire.open(replica.port) as wire:
        assert (await wire.ask(request("/health"))).status == 200
        assert await wire.ending() == "closed"
        await replica.wait_for(lambda: replica.open_connections == 0, DEADLINE_S)


@on_both_loops
async def test_pipelined_requests_are_answered_in_order() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        wire.send(chat(stream=True) + request("/version") + chat(n=2) + request("/nope"))
        answers = [await wire.answer() for _ in range(4)]
        assert {arrival.connection for arrival in replica.requests} == {1}
    assert [answer.status for answer in answers] == [200, 200, 200, 404]
    assert answers[0].data()[-1] == "[DONE]"
    assert answers[1].json() == {"version": "0.32.0"}
    assert len(answers[2].json()["choices"]) == 2


@on_both_loops
async def test_requests_are_recorded_as_they_came() -> None:
    head = (
        b"POST /v1/completions?x=1 HTTP/1.1\r\nHost: sim\r\nX-Odd: a\r\nx-odd: B\r\nContent-Type: application/json\r\n"
    )
    body = b'{"prompt":"hi","max_tokens":1}'
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:]))
        wire.send(head + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await wire.head()).status == 100
        assert (await wire.ask(chunks + b"0\r\n\r\n")).status == 200
        arrival = replica.requests[0]
    assert (arrival.method, arrival.target, arrival.path) == ("POST", "/v1/completions?x=1", "/v1/completions")
    assert arrival.headers[1:3] == [(b"X-Odd", b"a"), (b"x-odd", b"B")]
    assert (arrival.body, arrival.complete, arrival.status) == (body, True, 200)
    assert arrival.header(b"x-odd") == b"a"


async def test_only_the_latest_requests_are_kept() -> None:
    async with SimReplica(SimOptions(recorded_requests=3)) as replica, await Wire.open(replica.port) as wire:
        for _ in range(5):
            await wire.ask(request("/version"))
        assert [arrival.serial for arrival in replica.requests] == [3, 4, 5]


@on_both_loops
async def test_http_1_0_and_connection_close() -> None:
    async with SimReplica(FAST) as replica:
        old = await ask(replica.port, request(CHAT, {"messages": MESSAGES, "stream": True}, version="1.0"))
        async with await Wire.open(replica.port) as wire:
            closing = await wire.ask(request("/version", headers={"connection": "close"}))
            assert await wire.ending() == "closed"
    assert old.data()[-1] == "[DONE]"
    assert "transfer-encoding" not in old.headers
    assert closing.headers["connection"] == "close"


async def test_what_is_no_http_is_refused() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        answer = await wire.ask(b"HELO sim\r\n\r\n")
        assert (answer.status, answer.body) == (400, b"Invalid HTTP request received.")
        assert await wire.ending() == "closed"


async def test_head_answers_have_no_body() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        wire.send(request("/health", method="HEAD") + request("/metrics", method="HEAD") + request("/version"))
        health, metrics = await wire.answer(head_only=True), await wire.answer(head_only=True)
        assert (await wire.answer()).json() == {"version": "0.32.0"}
    assert (health.status, health.headers["allow"]) == (405, "GET")
    assert (metrics.status, int(metrics.headers["content-length"]) > 1_000) == (200, True)


async def test_the_key_guards_the_api_and_nothing_else() -> None:
    async with SimReplica(SimOptions(time_scale=1_000, api_key="k1")) as replica:
        bare = await ask(replica.port, chat())
        wrong = await ask(replica.port, request("/v1/models", headers={"authorization": "Bearer k2"}))
        right = await ask(replica.port, request("/v1/models", headers={"authorization": "bearer k1"}))
        open_to_all = [(await ask(replica.port, request(path))).status for path in ("/health", "/metrics", "/version")]
        tokens = await ask(replica.port, request("/tokenize", {"prompt": "x"}))
    assert (bare.status, bare.json()) == (401, {"error": "Unauthorized"})
    assert (wrong.status, right.status, tokens.status, open_to_all) == (401, 200, 200, [200] * 3)


ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.floats(-2, 2) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "function", "type"]), inner)
    ),
    max_leaves=6,
)
ODD_FIELDS = (
    "messages", "prompt", "input", "model", "max_tokens", "n", "stream", "stream_options", "tools", "tool_choice",
    "stop", "system", "instructions", "cache_salt", "temperature", "queries", "documents", "query", "dimensions",
    "previous_response_id", "encoding_format", "top_n", "return_token_ids", "ignore_eos", "min_tokens", "background",
)  # fmt: skip
SOUND_FIELDS = {"messages": MESSAGES, "prompt": "x", "input": "x", "max_tokens": 4, "queries": "x", "documents": ["x"]}
ODD_PATHS = (
    CHAT,
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/rerank",
    "/score",
    "/tokenize",
)


@given(
    st.lists(
        st.tuples(st.sampled_from(ODD_PATHS), st.dictionaries(st.sampled_from(ODD_FIELDS), ODD_VALUES)), max_size=8
    )
)
def test_no_body_breaks_the_server(requests: list[tuple[str, dict[str, Any]]]) -> None:
    async def scenario() -> None:
        async with SimReplica(SimOptions(time_scale=1e6, max_model_len=2_048)) as replica:
            async with await Wire.open(replica.port) as wire:
                for path, body in requests:
                    assert (await wire.ask(request(path, SOUND_FIELDS | body))).status in (200, 400, 404)
                assert (await wire.ask(request("/health"))).status == 200
            await replica.wait_for(lambda: not replica.engine.running and not replica.engine.waiting, DEADLINE_S)

    asyncio.run(scenario())


# Starting and stopping


async def test_waiting_for_what_never_comes_ends() -> None:
    async with SimReplica(FAST) as replica:
        with pytest.raises(TimeoutError):
            await replica.wait_for(lambda: replica.open_connections == 9, 0.01)


@on_both_loops
async def test_stop_ends_requests_under_way() -> None:
    replica = SimReplica(FAST)
    await replica.start()
    replica.faults.set(Fault(FaultKind.SLEEP))
    async with await Wire.open(replica.port) as wire:
        wire.send(chat(stream=True))
        await wire.head()
        await replica.stop()
        assert await wire.ending() == "reset"
        assert replica.open_connections == 0


async def test_a_taken_port_leaves_nothing_running() -> None:
    free, taken = neighbours()
    with taken:
        with pytest.raises(OSError, match="in use"):
            await serve_many(2, FAST, first_port=free)
        with pytest.raises(ConnectionRefusedError):
            await Wire.open(free)


def neighbours() -> tuple[int, socket.socket]:
    """Return a free port and a socket that holds the one after it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            free = first.getsockname()[1]
            with contextlib.suppress(OSError):
                return free, socket.create_server(("127.0.0.1", free + 1))


@pytest.mark.parametrize(
    "fields",
    [{"models": ()}, {"models": ("",)}, {"time_scale": 0}, {"keep_alive_s": 0}, {"max_model_len": 0}],
)
def test_options_that_mean_nothing_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="replica|above 0"):
        SimOptions(**fields)


async def test_run_sim_prints_urls_and_ends_on_sigterm() -> None:
    script = "from router.sim.server import run_sim; run_sim(0, 2)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": "."}
    )
    assert process.stdout is not None
    async with asyncio.timeout(3 * DEADLINE_S):
        urls = [(await process.stdout.readline()).decode().strip() for _ in range(2)]
        assert len(set(urls)) == 2
        for url in urls:
            host, _, port = url.removeprefix("http://").partition(":")
            assert host == "127.0.0.1"
            assert json.loads((await ask(int(port), request("/version"))).body) == {"version": "0.32.0"}
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
