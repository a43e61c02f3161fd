"""The simulated server as clients meet it: the openai library, raw HTTP, connections that end early."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any

import openai
import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.server import SimOptions, SimReplica, serve_many, stop_all
from router.sim.types import EngineConfig
from tests.sim.wire import CHAT, DEADLINE_S, MESSAGES, Wire, ask, chat, on_both_loops, request

FAST = SimOptions(time_scale=1_000)
LONG: Any = [{"role": "system", "content": "You are a careful assistant who answers at length. " * 30}, *MESSAGES]


def client(replica: SimReplica, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{replica.url}/v1", api_key=key, max_retries=0)


# The openai library


async def test_a_chat_and_its_next_turn() -> None:
    async with SimReplica(FAST) as replica, client(replica) as api:
        first = await api.chat.completions.create(model="sim-model", messages=LONG)
        answer = first.choices[0].message.content
        again = [*LONG, {"role": "assistant", "content": answer}, {"role": "user", "content": "and then?"}]
        second = await api.chat.completions.create(model="sim-model", messages=again)
        block = replica.engine.config.block_tokens
        hits = replica.engine.stats.prefix_hits_tokens
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details is not None
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    # All tokens of turn one but the last were computed; the full blocks of them are reused.
    computed = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert second.usage.prompt_tokens_details.cached_tokens == computed // block * block == hits > 200


async def test_a_stream_says_what_the_whole_answer_says() -> None:
    async with SimReplica(FAST) as replica, client(replica) as api:
        whole = await api.chat.completions.create(model="sim-model", messages=LONG, max_tokens=50)
        stream = await api.chat.completions.create(
            model="sim-model", messages=LONG, max_tokens=50, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert (deltas[0].role, deltas[0].content) == ("assistant", "")
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


async def test_tools_embeddings_models_and_completions() -> None:
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    async with SimReplica(FAST) as replica, client(replica) as api:
        called = await api.chat.completions.create(
            model="sim-model", messages=MESSAGES, tools=[tool], tool_choice="required"
        )
        vectors = await api.embeddings.create(model="sim-model", input=["one", "two", "one"])
        plain = await api.embeddings.create(model="sim-model", input="one", encoding_format="float")
        models = [model.id async for model in api.models.list()]
        text = await api.completions.create(model="sim-model", prompt="once upon", max_tokens=7)
    call = called.choices[0].message.tool_calls
    assert call is not None
    assert (called.choices[0].finish_reason, call[0].function.name) == ("tool_calls", "look")
    assert vectors.data[0].embedding == vectors.data[2].embedding != vectors.data[1].embedding
    assert plain.data[0].embedding == pytest.approx(vectors.data[0].embedding)
    assert sum(value**2 for value in plain.data[0].embedding) == pytest.approx(1)
    assert models == ["sim-model"]
    assert text.usage is not None
    assert text.usage.completion_tokens == 7


async def test_responses_are_stored_here_and_nowhere_else() -> None:
    replicas = await serve_many(2, FAST)
    try:
        async with client(replicas[0]) as here, client(replicas[1]) as there:
            first = await here.responses.create(model="sim-model", input="hello")
            assert first.id.startswith("resp_")
            assert (await here.responses.retrieve(first.id)).output_text == first.output_text
            second = await here.responses.create(model="sim-model", input="go on", previous_response_id=first.id)
            assert first.usage is not None
            assert second.usage is not None
            assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
            for attempt in (
                there.responses.retrieve(first.id),
                there.responses.create(model="sim-model", input="go on", previous_response_id=first.id),
            ):
                with pytest.raises(openai.NotFoundError, match=f"Response with id '{first.id}' not found"):
                    await attempt
            replicas[0].restart_cold()
            with pytest.raises((openai.NotFoundError, openai.APIConnectionError)):
                await here.responses.retrieve(first.id)
    finally:
        await stop_all(replicas)


async def test_a_response_streams_before_prefill() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.SLEEP))
        wire.send(request("/v1/responses", {"input": "hello", "stream": True}))
        answer = await wire.head()
        opening = [await wire.chunk(answer) for _ in range(2)]
        assert replica.engine.stats.first_tokens == 0
        replica.faults.clear()
        while await wire.chunk(answer):
            pass
    assert [event.split(b"\n")[0] for event in opening] == [b"event: response.created", b"event: response.in_progress"]
    assert answer.data()[-1]["response"]["status"] == "completed"
    assert b"[DONE]" not in answer.body


async def test_a_response_in_the_background_is_fetched_and_cancelled() -> None:
    async with SimReplica(FAST) as replica, client(replica) as api:
        queued = await api.responses.create(model="sim-model", input="hello", background=True)
        assert queued.status == "queued"
        await replica.wait_for(
            lambda: replica.engine.stats.first_tokens == 1 and not replica.engine.running, DEADLINE_S
        )
        assert (await api.responses.retrieve(queued.id)).status == "completed"
        replica.faults.set(Fault(FaultKind.SLEEP))
        waiting = await api.responses.create(model="sim-model", input="hello", background=True)
        assert (await api.responses.cancel(waiting.id)).status == "cancelled"
        assert replica.engine.running == 0
        with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
            await api.responses.cancel(queued.id)


async def test_without_a_store_nothing_is_kept() -> None:
    async with SimReplica(SimOptions(time_scale=1_000, response_store=False)) as replica, client(replica) as api:
        made = await api.responses.create(model="sim-model", input="hello")
        with pytest.raises(openai.NotFoundError):
            await api.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError):
            await api.responses.create(model="sim-model", input="hello", background=True)


# What goes out when


@on_both_loops
async def test_headers_go_out_before_prefill_and_data_after() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.SLEEP))
        wire.send(chat(stream=True))
        answer = await wire.head()
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        await replica.wait_for(lambda: replica.engine.running == 1, DEADLINE_S)
        assert replica.requests[0].chunks_sent == 0
        replica.faults.clear()
        while await wire.chunk(answer):
            pass
    assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in answer.chunks)
    assert [chunk.count(b"\n\n") for chunk in answer.chunks] == [1] * (1 + 4 + 1)


async def test_the_stream_interval_groups_tokens() -> None:
    async with SimReplica(SimOptions(time_scale=1_000, engine=EngineConfig(stream_interval=10))) as replica:
        grouped = await ask(replica.port, chat(stream=True, max_tokens=31))
    async with SimReplica(FAST) as replica:
        single = await ask(replica.port, chat(stream=True, max_tokens=31))
    assert (len(grouped.chunks), len(single.chunks)) == (1 + 4 + 1, 1 + 31 + 1)
    assert grouped.text() == single.text()


async def test_a_silent_stream_gets_comments_where_they_are_switched_on() -> None:
    async with SimReplica(SimOptions(sse_keep_alive_s=0.01)) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.SLEEP))
        wire.send(chat(stream=True, max_tokens=1))
        answer = await wire.head()
        assert [await wire.chunk(answer) for _ in range(2)] == [b": keep-alive\n\n"] * 2
        replica.faults.clear()
        while await wire.chunk(answer):
            pass
    assert answer.data()[-1] == "[DONE]"


async def test_the_clock_runs_faster_by_the_scale() -> None:
    slow = EngineConfig(decode_s=3_600.0)
    async with SimReplica(SimOptions(engine=slow, time_scale=1e7)) as replica:
        assert (await ask(replica.port, chat())).status == 200


@on_both_loops
async def test_a_client_that_leaves_is_taken_off_the_engine() -> None:
    async with SimReplica(SimOptions(engine=EngineConfig(max_num_seqs=1))) as replica:
        for streaming in (True, False):
            leaver = await Wire.open(replica.port)
            leaver.send(chat(stream=streaming, max_tokens=5_000))
            await replica.wait_for(lambda: replica.engine.running == 1, DEADLINE_S)
            waiting = await Wire.open(replica.port)
            waiting.send(chat(stream=streaming))
            await replica.wait_for(lambda: replica.engine.waiting == 1, DEADLINE_S)
            for wire in (waiting, leaver):
                wire.leave()
            await replica.wait_for(lambda: replica.engine.running == replica.engine.waiting == 0, DEADLINE_S)
            assert replica.engine.kv_usage_ratio == 0
        assert [arrival.left_early for arrival in replica.requests] == [True] * 4
        assert all(arrival.left_s is not None and not arrival.ended for arrival in replica.requests)


@on_both_loops
async def test_leaving_during_an_upload_is_recorded() -> None:
    async with SimReplica(FAST) as replica:
        wire = await Wire.open(replica.port)
        wire.send(chat()[:-20])
        await replica.wait_for(lambda: len(replica.requests) == 1, DEADLINE_S)
        wire.leave()
        await replica.wait_for(lambda: replica.requests[0].left_early, DEADLINE_S)
        assert not replica.requests[0].complete
        assert replica.requests[0].body.startswith(b'{"messages"')


async def test_a_client_that_leaves_after_its_answer_did_not_leave_early() -> None:
    async with SimReplica(FAST) as replica:
        await ask(replica.port, chat())
        await replica.wait_for(lambda: replica.open_connections == 0, DEADLINE_S)
        assert (replica.requests[0].ended, replica.requests[0].left_early) == (True, False)


# Lengths


async def test_lengths_and_endings() -> None:
    async with SimReplica(FAST) as replica:

        async def choice(**fields: Any) -> tuple[Any, int]:
            body = (await ask(replica.port, chat(**{"max_tokens": None, "ignore_eos": False} | fields))).json()
            return body["choices"][0], body["usage"]["completion_tokens"]

        natural, tokens = await choice()
        cut, cut_tokens = await choice(max_tokens=tokens - 2)
        longer, longer_tokens = await choice(max_tokens=tokens + 50, ignore_eos=True)
        least, least_tokens = await choice(min_tokens=tokens + 20)
        newer, newer_tokens = await choice(max_completion_tokens=3, max_tokens=9)
    assert natural["finish_reason"] == least["finish_reason"] == "stop"
    assert cut["finish_reason"] == longer["finish_reason"] == newer["finish_reason"] == "length"
    assert (cut_tokens, longer_tokens, newer_tokens) == (tokens - 2, tokens + 50, 3)
    assert least_tokens >= tokens + 20
    assert natural["message"]["content"].startswith(cut["message"]["content"])


async def test_every_replica_answers_a_prompt_alike() -> None:
    async with SimReplica(FAST) as one, SimReplica(FAST) as other:
        answers = [(await ask(replica.port, chat(max_tokens=20))).json()["choices"] for replica in (one, other)]
    assert answers[0] == answers[1]


async def test_salts_and_adapters_have_prefixes_of_their_own() -> None:
    async with SimReplica(FAST) as replica:
        replica.state.adapters.append("tuned")

        async def cached(**fields: Any) -> int:
            body = (await ask(replica.port, chat(messages=LONG, **fields))).json()
            return int(body["usage"]["prompt_tokens_details"]["cached_tokens"])

        kinds: list[dict[str, str]] = [{}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"model": "tuned"}]
        assert [await cached(**fields) for fields in kinds] == [0] * 4
        assert all([await cached(**fields) > 0 for fields in kinds])
        models = (await ask(replica.port, request("/v1/models"))).json()["data"]
        tuned = (await ask(replica.port, chat(model="tuned"))).json()["model"]
    assert [(model["id"], model["parent"]) for model in models] == [("sim-model", None), ("tuned", "sim-model")]
    assert tuned == "tuned"


# HTTP


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


async def test_a_full_queue_is_refused_before_the_stream() -> None:
    config = EngineConfig(max_num_queued_reqs=0)
    async with SimReplica(SimOptions(engine=config)) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.SLEEP))
        wire.send(chat())
        await replica.wait_for(lambda: replica.engine.running == 1, DEADLINE_S)
        refused = await ask(replica.port, chat(stream=True))
        message = await ask(replica.port, request("/v1/messages", {"messages": MESSAGES, "max_tokens": 3}))
        assert replica.engine.stats.rejected == 2
    assert (refused.status, refused.json()["error"]["type"]) == (503, "Service Unavailable")
    assert (message.status, message.json()["type"]) == (503, "error")


async def test_prompts_longer_than_the_cache_are_too_long() -> None:
    async with SimReplica(SimOptions(engine=EngineConfig(kv_tokens=1_600), time_scale=1_000)) as replica:
        models = (await ask(replica.port, request("/v1/models"))).json()["data"]
        long = {"prompt": [7] * 1_500, "ignore_eos": True}
        fits = await ask(replica.port, request("/v1/completions", long | {"max_tokens": 500}))
        too_long = await ask(replica.port, request("/v1/completions", {"prompt": [7] * 1_600}))
    assert models[0]["max_model_len"] == 1_584
    assert (fits.status, fits.json()["usage"]["completion_tokens"]) == (200, 84)
    assert too_long.json()["error"]["param"] == "input_tokens"


async def test_audio_is_taken_as_it_comes() -> None:
    body = (
        b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        + bytes(70_000)
        + b"\r\n--b--\r\n"
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    async with SimReplica(FAST) as replica:
        answer = await ask(replica.port, request("/v1/audio/transcriptions", body, headers=headers))
    assert answer.json()["usage"] == {"type": "duration", "seconds": 5}
    assert answer.json()["text"]


async def test_the_other_pooling_routes() -> None:
    async with SimReplica(FAST) as replica:

        async def post(path: str, body: dict[str, Any]) -> Any:
            answer = await ask(replica.port, request(path, body))
            assert answer.status == 200, answer.body
            return answer.json()

        documents = ["a river", "a road", "a town"]
        ranked = await post("/v1/rerank", {"query": "water", "documents": documents, "top_n": 2})
        scores = await post("/score", {"text_1": "water", "text_2": documents})
        labels = await post("/classify", {"input": documents})
        pooled = await post("/pooling", {"messages": MESSAGES})
    order = [result["index"] for result in ranked["results"]]
    values = [item["score"] for item in scores["data"]]
    assert order == sorted(range(3), key=lambda index: -values[index])[:2]
    assert ranked["results"][0]["document"]["text"] == documents[order[0]]
    assert [item["num_classes"] for item in labels["data"]] == [2, 2, 2]
    assert pooled["usage"]["prompt_tokens"] == pooled["usage"]["total_tokens"] > 0


async def test_development_routes_exist_in_development_mode() -> None:
    async with (
        SimReplica(SimOptions(time_scale=1_000, dev_mode=True)) as replica,
        await Wire.open(replica.port) as wire,
    ):

        async def post(path: str) -> Any:
            return (await ask(replica.port, request(path, b""))).json()

        assert (await ask(replica.port, chat(messages=LONG))).status == 200
        assert await post("/reset_prefix_cache") == {"success": True}
        assert await post("/sleep?level=2") == {"status": "sleeping", "level": 2}
        wire.send(chat(messages=LONG))
        await replica.wait_for(lambda: replica.engine.running == 1, DEADLINE_S)
        assert await post("/reset_prefix_cache") == {"success": False}
        assert (await ask(replica.port, request("/is_sleeping"))).json() == {"is_sleeping": True}
        assert await post("/wake_up") == {"status": "awake", "tags": None}
        assert (await wire.answer()).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert await post("/pause") == {"status": "paused"}
        assert (await ask(replica.port, request("/is_paused"))).json() == {"is_paused": True}
        assert await post("/resume") == {"status": "resumed"}


async def test_load_counts_where_it_is_tracked() -> None:
    for tracked in (True, False):
        async with (
            SimReplica(SimOptions(server_load_tracking=tracked)) as replica,
            await Wire.open(replica.port) as wire,
        ):
            replica.faults.set(Fault(FaultKind.SLEEP))
            wire.send(chat())
            await replica.wait_for(lambda: replica.engine.running == 1, DEADLINE_S)
            assert (await ask(replica.port, request("/load"))).json() == {"server_load": int(tracked)}


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
