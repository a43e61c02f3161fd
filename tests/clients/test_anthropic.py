"""anthropic-python on /v1/messages: whole and streamed, tools, counting, errors in its own form."""

from __future__ import annotations

import inspect
from typing import Any

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam

from router.sim.faults import Fault, FaultKind
from tests.clients.fleet import LONG, Fleet, at_rest, warm
from tests.rig.stage import Stage

HELLO: list[MessageParam] = [{"role": "user", "content": "hello"}]
LOOK: ToolParam = {
    "name": "look",
    "description": "Look at a place",
    "input_schema": {
        "type": "object",
        "properties": {"at": {"enum": ["the pier", "the sea"]}},
        "required": ["at"],
        "additionalProperties": False,
    },
}
CALLED: Any = {"type": "tool", "name": "look"}
STEADY: Any = {"temperature": 0}
MARK: Any = {"type": "ephemeral"}


async def test_a_message(fleet: Fleet) -> None:
    answer = await fleet.anthropic.messages.create(model=fleet.model, max_tokens=9, messages=HELLO, system="Be brief.")
    assert answer.role == "assistant"
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert 0 < answer.usage.output_tokens <= 9
    assert answer._request_id is None, "Anthropic's name for this header is request-id, which vLLM does not send"


async def test_a_streamed_message(fleet: Fleet) -> None:
    async with fleet.anthropic.messages.stream(model=fleet.model, max_tokens=20, messages=HELLO) as stream:
        said = "".join([text async for text in stream.text_stream])
        final = await stream.get_final_message()
    assert final.content[0].type == "text"
    assert final.content[0].text == said
    assert final.usage.output_tokens > 0


async def test_counting(fleet: Fleet) -> None:
    async def count(**fields: Any) -> int:
        counted = await fleet.anthropic.messages.count_tokens(model=fleet.model, messages=HELLO, **fields)
        return counted.input_tokens

    assert 0 < await count() < await count(system=LONG)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_stays_where_its_history_is(fleet: Fleet, stream: bool) -> None:
    """System prompt in blocks and a cache mark on the newest message, as Claude Code has them."""
    system: Any = [{"type": "text", "text": f"{stream} {LONG}", "cache_control": MARK}]
    past: list[MessageParam] = []
    heads, cached = [], []
    for turn in range(3):
        asked: Any = {"type": "text", "text": f"And then, {turn}? {LONG}"}
        messages: list[MessageParam] = [*past, {"role": "user", "content": [asked | {"cache_control": MARK}]}]
        raw = await fleet.anthropic.messages.with_raw_response.create(
            model=fleet.model, max_tokens=20, messages=messages, system=system, stream=stream
        )
        parsed: Any = await parsed_of(raw)
        said, usage = await spoken(parsed) if stream else (parsed.content[0].text, parsed.usage)
        heads.append(raw.headers)
        cached.append(usage.cache_read_input_tokens or 0)
        past += [{"role": "user", "content": [asked]}, {"role": "assistant", "content": said}]
    warm(heads[1], heads[0])
    warm(heads[2], heads[0])
    assert 256 < cached[1] < cached[2]


async def parsed_of(raw: Any) -> Any:
    """Releases differ in whether this is awaited."""
    parsed = raw.parse()
    return await parsed if inspect.isawaitable(parsed) else parsed


async def spoken(stream: Any) -> tuple[str, Any]:
    said, usage = "", None
    async for event in stream:
        if event.type == "content_block_delta":
            said += event.delta.text
        elif event.type == "message_delta":
            usage = event.usage
    return said, usage


async def test_a_tool_is_called_and_its_input_streamed(simulated: Fleet) -> None:
    options: Any = {
        "model": simulated.model,
        "max_tokens": 200,
        "messages": HELLO,
        "tools": [LOOK],
        "tool_choice": CALLED,
    }
    whole = await simulated.anthropic.messages.create(**options, extra_body=STEADY)
    assert whole.content[-1].type == "tool_use"
    assert set(whole.content[-1].input) == {"at"}
    async with simulated.anthropic.messages.stream(**options, extra_body=STEADY) as stream:
        final = await stream.get_final_message()
    assert final.content[-1].type == "tool_use"
    assert set(final.content[-1].input) == {"at"}
    assert whole.stop_reason == final.stop_reason == "tool_use"


async def test_an_agents_loop_stays_warm(fleet: Fleet) -> None:
    """Each round is one turn longer, and the mark on a result is gone in the next round."""
    past: list[Any] = [{"role": "user", "content": f"Look. {LONG}"}]
    heads, cached = [], []
    for number in range(4):
        newest = past[-1]
        if number:
            newest = newest | {"content": [newest["content"][0] | {"cache_control": MARK}]}
        raw = await fleet.anthropic.messages.with_raw_response.create(
            model=fleet.model, max_tokens=4, messages=[*past[:-1], newest], tools=[LOOK]
        )
        heads.append(raw.headers)
        cached.append((await parsed_of(raw)).usage.cache_read_input_tokens or 0)
        call = {"type": "tool_use", "id": f"call-{number}", "name": "look", "input": {"at": "the sea"}}
        result = {"type": "tool_result", "tool_use_id": f"call-{number}", "content": f"{number}: water " * 200}
        past += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    matched = []
    for head in heads[1:]:
        warm(head, heads[0])
        matched.append(int(head["x-warmroute-matched-tokens"]))
    assert matched[1] - matched[0] > 256, "the result of the round before counts as cached"
    assert matched[2] - matched[1] > 256
    assert 256 < cached[1] < cached[2] < cached[3]
    turns = [record.turn for record in fleet.router.records.finished]
    assert [turn.number for turn in turns if turn is not None] == [1, 2, 3, 4]


async def test_a_structured_answer(fleet: Fleet) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"]}
    answer = await fleet.anthropic.messages.create(
        model=fleet.model, max_tokens=40, messages=HELLO, extra_body=STEADY,
        output_config={"format": {"type": "json_schema", "schema": schema | {"additionalProperties": False}}},
    )  # fmt: skip
    assert answer.content[0].type == "text"
    assert answer.content[0].text.lstrip().startswith("{")


# Errors


async def test_the_engines_errors(fleet: Fleet) -> None:
    with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
        await fleet.anthropic.messages.create(
            model=fleet.model, max_tokens=5, messages=[{"role": "user", "content": LONG * 300}]
        )


async def test_an_unknown_model(fleet: Fleet) -> None:
    with pytest.raises(anthropic.NotFoundError, match="does not exist") as refused:
        await fleet.anthropic.messages.create(model="nope", max_tokens=5, messages=HELLO)
    assert refused.value.type == "not_found_error"


async def test_a_wrong_key(stage: Stage) -> None:
    async with await at_rest(stage, 1, api_keys="right") as fleet:
        await fleet.anthropic.messages.create(model="sim-model", max_tokens=5, messages=HELLO)
        http = anthropic.DefaultAsyncHttpxClient(trust_env=False)
        async with anthropic.AsyncAnthropic(base_url=fleet.router.url, auth_token="right", http_client=http) as holder:
            await holder.messages.create(model="sim-model", max_tokens=5, messages=HELLO)
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await fleet.anthropic.with_options(api_key="wrong").messages.create(
                model="sim-model", max_tokens=5, messages=HELLO
            )
        assert refused.value.type == "authentication_error"


async def test_a_limit_of_the_key(stage: Stage) -> None:
    async with await at_rest(stage, 1, api_keys="right", key_requests_per_minute=1) as fleet:
        await fleet.anthropic.messages.create(model="sim-model", max_tokens=5, messages=HELLO)
        with pytest.raises(anthropic.RateLimitError) as refused:
            await fleet.anthropic.messages.create(model="sim-model", max_tokens=5, messages=HELLO)
        assert int(refused.value.response.headers["retry-after"]) >= 1


async def test_a_body_that_is_too_large(stage: Stage) -> None:
    async with await at_rest(stage, 1, max_body_bytes=4096) as fleet:
        with pytest.raises(anthropic.APIStatusError) as refused:
            await fleet.anthropic.messages.create(
                model="sim-model", max_tokens=5, messages=[{"role": "user", "content": LONG * 10}]
            )
        assert (refused.value.status_code, refused.value.type) == (413, "request_too_large")


async def test_no_replica_takes_it(simulated: Fleet) -> None:
    for replica in simulated.replicas:
        replica.faults.set(Fault(FaultKind.REFUSE))
        replica.restart_cold()
    with pytest.raises(anthropic.InternalServerError) as refused:
        await simulated.anthropic.messages.create(model="sim-model", max_tokens=5, messages=HELLO)
    assert (refused.value.status_code, refused.value.type) == (503, "overloaded_error")


async def test_a_stream_that_dies_raises(simulated: Fleet) -> None:
    for replica in simulated.replicas:
        replica.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=4))
    with pytest.raises(anthropic.APIError):
        async with simulated.anthropic.messages.stream(model="sim-model", max_tokens=30, messages=HELLO) as messages:
            await messages.get_final_message()


async def test_a_stream_closed_early_frees_the_engine(stage: Stage) -> None:
    async with await at_rest(stage, 1, time_scale=1.0) as fleet:
        (replica,) = fleet.replicas
        async with fleet.anthropic.messages.stream(
            model="sim-model", max_tokens=50_000, messages=HELLO, extra_body={"ignore_eos": True}
        ) as stream:
            async for _ in stream:
                break
            assert replica.engine.running == 1
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)
        await fleet.router.idle()
