"""The simulated server through the openai library, and /v1/responses, which only its own replica remembers."""

from typing import Any

import anthropic
import openai
import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.server import SimOptions, SimReplica, serve_many, stop_all
from tests.sim.wire import DEADLINE_S, LONG, MESSAGES, Wire, request

FAST = SimOptions(time_scale=1_000)


def client(replica: SimReplica) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{replica.url}/v1", api_key="none", max_retries=0)


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
    call: Any = called.choices[0].message.tool_calls
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


async def test_the_anthropic_library_reads_messages_and_their_streams() -> None:
    async with SimReplica(FAST) as replica, anthropic.AsyncAnthropic(base_url=replica.url, api_key="none") as api:
        counted = await api.messages.count_tokens(model="sim-model", messages=MESSAGES)
        whole = await api.messages.create(
            model="sim-model", messages=LONG[1:], system=LONG[0]["content"], max_tokens=30
        )
        async with api.messages.stream(
            model="sim-model", messages=LONG[1:], system=LONG[0]["content"], max_tokens=30
        ) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
    block: Any = whole.content[0]
    assert text == block.text == final.content[0].text  # type: ignore[union-attr]
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    # The whole prompt is what was read from the cache, written to it, and the rest.
    usage = whole.usage
    assert usage.cache_read_input_tokens == 0
    assert usage.cache_creation_input_tokens is not None
    assert 0 < usage.input_tokens < replica.options.engine.block_tokens
    assert final.usage.cache_read_input_tokens == usage.cache_creation_input_tokens > counted.input_tokens
