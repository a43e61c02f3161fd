"""openai-python: chats, whole and streamed, their headers, their end."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from router.core.types import OutcomeKind
from router.sim.faults import Fault, FaultKind
from tests.clients.fleet import LONG, Fleet, at_rest, warm
from tests.rig.stage import Stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]
STORY: list[ChatCompletionMessageParam] = [{"role": "user", "content": LONG}]


class Harbour(BaseModel):
    """What a structured answer is parsed into."""

    name: Literal["Oslo", "Bergen"]
    ships: Literal[1, 2, 3]
    open: bool


async def test_chat(fleet: Fleet) -> None:
    answer = await fleet.openai.chat.completions.create(model=fleet.model, messages=HELLO, max_tokens=5)
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 5
    assert answer._request_id


async def test_the_synchronous_client(fleet: Fleet) -> None:
    def use(client: openai.OpenAI) -> tuple[str, int]:
        whole = client.chat.completions.create(model=fleet.model, messages=HELLO, max_tokens=5)
        stream = client.chat.completions.create(
            model=fleet.model, messages=HELLO, max_tokens=9, stream=True, extra_body={"ignore_eos": True}
        )
        return whole.id, sum(len(chunk.choices) for chunk in stream)

    ident, deltas = await fleet.sync(use)
    assert ident.startswith("chatcmpl-")
    assert deltas > 5


@pytest.mark.parametrize("asked", [True, False])
async def test_a_stream_ends_with_its_usage_where_that_was_asked_for(fleet: Fleet, asked: bool) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if asked else {}
    stream = await fleet.openai.chat.completions.create(
        model=fleet.model, messages=STORY, max_tokens=20, stream=True, extra_body={"ignore_eos": True}, **options
    )
    chunks = [chunk async for chunk in stream]
    usage = chunks[-1].usage
    assert (usage is not None) is asked
    if usage is not None:
        assert usage.prompt_tokens > 256
        assert usage.completion_tokens == 20
        assert not chunks[-1].choices
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "length"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_stays_where_its_history_is(fleet: Fleet, stream: bool) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": f"{stream} {LONG}"}, *HELLO]
    heads = []
    for turn in range(3):
        raw = await fleet.openai.chat.completions.with_raw_response.create(
            model=fleet.model, messages=messages, max_tokens=24, stream=stream,
            extra_body={"stream_options": {"include_usage": True}} if stream else {},
        )  # fmt: skip
        heads.append(raw.headers)
        parsed: Any = raw.parse()
        if stream:
            chunks = [chunk async for chunk in parsed]
            said, usage = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks[-1].usage
        else:
            said, usage = parsed.choices[0].message.content, parsed.usage
        if turn:
            assert usage.prompt_tokens_details.cached_tokens > 256
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": f"And then, {turn}?"}]
    warm(heads[1], heads[0])
    warm(heads[2], heads[0])


async def test_several_choices(fleet: Fleet) -> None:
    answer = await fleet.openai.chat.completions.create(model=fleet.model, messages=HELLO, max_tokens=5, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


async def test_a_structured_answer_is_parsed(fleet: Fleet) -> None:
    answer = await fleet.openai.chat.completions.parse(
        model=fleet.model, messages=HELLO, response_format=Harbour, max_tokens=400, temperature=0, seed=1
    )
    assert isinstance(answer.choices[0].message.parsed, Harbour)


async def test_json_without_a_schema(fleet: Fleet) -> None:
    answer = await fleet.openai.chat.completions.create(
        model=fleet.model, messages=HELLO, max_tokens=3, response_format={"type": "json_object"}
    )
    assert (answer.choices[0].message.content or "").lstrip().startswith("{")


async def test_choices_of_vllm(fleet: Fleet) -> None:
    answer = await fleet.openai.chat.completions.create(
        model=fleet.model, messages=HELLO, extra_body={"structured_outputs": {"choice": ["port", "starboard"]}}
    )
    assert answer.choices[0].message.content in ("port", "starboard")


async def test_extra_headers_and_bodies_reach_the_engine(simulated: Fleet) -> None:
    raw = await simulated.openai.chat.completions.with_raw_response.create(
        model="sim-model",
        messages=HELLO,
        max_tokens=3,
        extra_headers={"x-request-id": "mine-7", "x-session-id": "s-1", "x-custom": "kept"},
        extra_body={"cache_salt": "tenant-1", "vllm_xargs": {"a": 1}},
        extra_query={"trace": "on"},
    )
    assert raw.headers["x-request-id"] == "mine-7"
    assert raw.request_id == "mine-7"
    answer = raw.parse()
    assert answer._request_id == "mine-7"
    assert answer.id == "chatcmpl-mine-7"
    (arrival,) = [one for replica in simulated.replicas for one in replica.requests if one.method == "POST"]
    assert arrival.header(b"x-custom") == b"kept"
    assert arrival.target.endswith(b"?trace=on") if isinstance(arrival.target, bytes) else "trace=on" in arrival.target
    sent = json.loads(arrival.body)
    assert sent["cache_salt"] == "tenant-1"
    assert sent["vllm_xargs"] == {"a": 1}


async def test_a_session_header_names_the_session(simulated: Fleet) -> None:
    chosen = []
    for turn in range(4):
        raw = await simulated.openai.chat.completions.with_raw_response.create(
            model="sim-model",
            messages=[{"role": "user", "content": f"{turn} {LONG}"}],
            max_tokens=3,
            extra_headers={"x-session-id": "alice-7"},
        )
        chosen.append((raw.headers["x-warmroute-replica"], raw.headers["x-warmroute-decision"]))
    assert len({replica for replica, _ in chosen}) == 1
    assert [decision for _, decision in chosen[1:]] == ["session"] * 3


async def test_a_stream_closed_early_frees_the_engine(stage: Stage) -> None:
    async with await at_rest(stage, 1, time_scale=1.0) as fleet:
        (replica,) = fleet.replicas
        stream = await fleet.openai.chat.completions.create(
            model="sim-model", messages=HELLO, stream=True, max_tokens=50_000, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            break
        assert replica.engine.running == 1
        await stream.close()
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)
        await fleet.router.idle()


async def test_a_stream_closed_early_frees_any_engine(fleet: Fleet) -> None:
    """What a real engine is seen to run is what its metrics say."""
    stream = await fleet.openai.chat.completions.create(
        model=fleet.model, messages=HELLO, stream=True, max_tokens=12_000, extra_body={"ignore_eos": True}
    )
    async for _ in stream:
        break
    await stream.close()
    await fleet.idle()
    assert [record.outcome for record in fleet.router.records.finished] == [OutcomeKind.CLIENT_LEFT]


async def test_a_stream_that_dies_raises(simulated: Fleet) -> None:
    """No client may take a broken stream for a finished one."""
    for replica in simulated.replicas:
        replica.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=4))
    with pytest.raises(openai.APIError):
        stream = await simulated.openai.chat.completions.create(
            model="sim-model", messages=HELLO, stream=True, max_tokens=30, extra_body={"ignore_eos": True}
        )
        async for _ in stream:
            pass
