"""The clients that people use, unchanged but for their base URL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.running import Router
from tests.rig.stage import Stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}


class Fleet:
    """Replicas, a router, and a client of each kind."""

    def __init__(self, router: Router, replicas: list[SimReplica]) -> None:
        self.router = router
        self.replicas = replicas
        self.openai = openai.AsyncOpenAI(
            base_url=f"{router.url}/v1",
            api_key="unused",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        )
        self.anthropic = anthropic.AsyncAnthropic(
            base_url=router.url,
            api_key="unused",
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.openai.close()
        await self.anthropic.close()


@pytest.fixture
async def fleet(stage: Stage) -> AsyncIterator[Fleet]:
    replicas = await stage.replicas(4)
    router = await stage.router(*replicas, watched=True)
    await router.until(lambda: all(router.books(replica).models for replica in replicas))
    async with Fleet(router, replicas) as fleet:
        yield fleet


async def test_models(fleet: Fleet) -> None:
    models = (await fleet.openai.models.list()).data
    assert [model.id for model in models] == ["sim-model"]
    assert models[0].model_extra is not None
    assert models[0].model_extra["max_model_len"] == 131_072


async def test_chat(fleet: Fleet) -> None:
    answer = await fleet.openai.chat.completions.create(model="sim-model", messages=HELLO, max_tokens=5)
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5


async def test_chat_streamed(fleet: Fleet) -> None:
    stream = await fleet.openai.chat.completions.create(
        model="sim-model", messages=HELLO, max_tokens=20, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens > 0
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_tools_streamed_and_whole(fleet: Fleet) -> None:
    answer = await fleet.openai.chat.completions.create(
        model="sim-model", messages=HELLO, tools=[WEATHER], tool_choice="required"
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert calls[0].function.name == "get_weather"
    async with fleet.openai.chat.completions.stream(
        model="sim-model", messages=HELLO, tools=[WEATHER], tool_choice="required"
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.tool_calls


async def test_a_tool_conversation_stays_warm(fleet: Fleet) -> None:
    """The assistant's call and the tool's result are part of the prompt's identity."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What of the weather? " * 60}]
    first = await fleet.openai.chat.completions.with_raw_response.create(
        model="sim-model", messages=messages, tools=[WEATHER], tool_choice="required"
    )
    call = first.parse().choices[0].message
    messages.append(call.model_dump(exclude_none=True))  # type: ignore[arg-type]
    assert call.tool_calls
    messages.append({"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "rain " * 200})
    second = await fleet.openai.chat.completions.with_raw_response.create(
        model="sim-model", messages=messages, tools=[WEATHER]
    )
    assert second.headers["x-warmroute-replica"] == first.headers["x-warmroute-replica"]
    assert second.headers["x-warmroute-decision"] == "warm"


async def test_embeddings(fleet: Fleet) -> None:
    answer = await fleet.openai.embeddings.create(model="sim-model", input=["one", "two"])
    assert len(answer.data) == 2
    assert all(isinstance(value, float) for value in answer.data[0].embedding)


async def test_completions(fleet: Fleet) -> None:
    answer = await fleet.openai.completions.create(model="sim-model", prompt="Once upon a time", max_tokens=7)
    assert answer.choices[0].text


async def test_audio(fleet: Fleet) -> None:
    answer = await fleet.openai.audio.transcriptions.create(
        model="sim-model", file=("speech.wav", b"RIFF" + bytes(100_000), "audio/wav")
    )
    assert answer.text


async def test_a_stored_response_is_fetched_and_continued_on_the_replica_that_stores_it(fleet: Fleet) -> None:
    stored = {}
    for number in range(8):
        made = await fleet.openai.responses.with_raw_response.create(model="sim-model", input=f"Number {number}")
        stored[made.parse().id] = made.headers["x-warmroute-replica"]
    assert len(set(stored.values())) == 4
    for response_id, home in stored.items():
        fetched = await fleet.openai.responses.with_raw_response.retrieve(response_id)
        assert fetched.parse().id == response_id
        assert fetched.headers["x-warmroute-replica"] == home
        assert fetched.headers["x-warmroute-decision"] == "pinned"
    for response_id, home in stored.items():
        continued = await fleet.openai.responses.with_raw_response.create(
            model="sim-model", input="And then?", previous_response_id=response_id
        )
        assert continued.parse().status == "completed"
        assert continued.headers["x-warmroute-replica"] == home


async def test_a_streamed_response_is_stored_too(fleet: Fleet) -> None:
    for number in range(4):
        async with fleet.openai.responses.stream(model="sim-model", input=f"Number {number}") as stream:
            final = await stream.get_final_response()
        assert (await fleet.openai.responses.retrieve(final.id)).id == final.id
        continued = await fleet.openai.responses.create(
            model="sim-model", input="And then?", previous_response_id=final.id
        )
        assert continued.status == "completed"


async def test_a_background_response_is_cancelled_where_it_runs(stage: Stage) -> None:
    replicas = await stage.replicas(4, time_scale=1.0)
    async with Fleet(await stage.router(*replicas), replicas) as fleet:
        for number in range(4):
            made = await fleet.openai.responses.create(
                model="sim-model",
                input=f"Number {number}",
                background=True,
                max_output_tokens=5_000,
                extra_body={"ignore_eos": True},
            )
            assert (await fleet.openai.responses.cancel(made.id)).status == "cancelled"


async def test_messages(fleet: Fleet) -> None:
    answer = await fleet.anthropic.messages.create(
        model="sim-model", max_tokens=50, messages=[{"role": "user", "content": "hello"}]
    )
    assert answer.content[0].type == "text"
    async with fleet.anthropic.messages.stream(
        model="sim-model", max_tokens=50, messages=[{"role": "user", "content": "hello"}]
    ) as stream:
        final = await stream.get_final_message()
    assert final.stop_reason in ("end_turn", "max_tokens")
    counted = await fleet.anthropic.messages.count_tokens(
        model="sim-model", messages=[{"role": "user", "content": "hello"}]
    )
    assert counted.input_tokens > 0


async def test_a_stream_closed_early_frees_the_engine(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    async with Fleet(router, [replica]) as fleet:
        stream = await fleet.openai.chat.completions.create(
            model="sim-model", messages=HELLO, stream=True, max_tokens=50_000, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            break
        assert replica.engine.running == 1
        await stream.close()
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)
        await router.idle()


async def test_the_engines_errors_are_the_clients_exceptions(fleet: Fleet) -> None:
    with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist"):
        await fleet.openai.chat.completions.create(model="nope", messages=HELLO)
    with pytest.raises(openai.BadRequestError):
        await fleet.openai.chat.completions.create(model="sim-model", messages=HELLO, temperature=-1)


async def test_the_routers_errors_are_the_clients_exceptions(fleet: Fleet) -> None:
    for replica in fleet.replicas:
        replica.faults.set(Fault(FaultKind.REFUSE))
        replica.restart_cold()
    with pytest.raises(openai.InternalServerError) as refused:
        await fleet.openai.chat.completions.create(model="sim-model", messages=HELLO)
    assert refused.value.status_code == 503
    assert refused.value.code == "upstream_failed"
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        await fleet.anthropic.messages.create(
            model="sim-model", max_tokens=5, messages=[{"role": "user", "content": "hello"}]
        )
    assert overloaded.value.status_code == 503


async def test_a_stream_that_dies_raises_in_the_client(fleet: Fleet) -> None:
    """Neither client library may take a broken stream for a finished one."""
    for replica in fleet.replicas:
        replica.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=4))
    with pytest.raises(openai.APIError):
        stream = await fleet.openai.chat.completions.create(
            model="sim-model", messages=HELLO, stream=True, max_tokens=30, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            pass
    await fleet.router.until(lambda: len(fleet.router.records.finished) == 1)
    with pytest.raises(anthropic.APIError):
        async with fleet.anthropic.messages.stream(
            model="sim-model", max_tokens=30, messages=[{"role": "user", "content": "hello"}]
        ) as messages:
            await messages.get_final_message()


async def test_the_clients_retries_meet_a_recovered_fleet(stage: Stage) -> None:
    """The client's own retry honours Retry-After and succeeds."""
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, count=1))
    async with Fleet(await stage.router(replica), [replica]) as fleet:
        patient = fleet.openai.with_options(max_retries=2)
        answer = await patient.chat.completions.create(model="sim-model", messages=HELLO, max_tokens=3)
        assert answer.choices
