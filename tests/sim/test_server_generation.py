"""What the simulated server generates and when it says it: timing, clients that leave, lengths, the other routes."""

from typing import Any

from router.sim.faults import Fault, FaultKind
from router.sim.server import SimOptions, SimReplica
from router.sim.types import EngineConfig
from tests.sim.wire import DEADLINE_S, LONG, MESSAGES, Wire, ask, chat, on_both_loops, request

FAST = SimOptions(time_scale=1_000)


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


# Routes


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
