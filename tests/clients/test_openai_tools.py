"""openai-python: tools, whole and streamed, and an agent's loop, whose rounds must find what the last one cached.

A model of random weights calls no tools, so that real servers see calls in a history only.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.clients.fleet import LONG, Fleet, warm

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What of the weather?"}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Bergen"]}, "days": {"enum": [1, 2, 3]}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
STEADY: dict[str, Any] = {"temperature": 0, "seed": 1, "max_tokens": 400}


def arguments_of(text: str) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(text)
    assert set(arguments) == {"city", "days"}
    return arguments


async def test_a_named_tool_is_called(simulated: Fleet) -> None:
    answer = await simulated.openai.chat.completions.create(
        model=simulated.model, messages=HELLO, tools=[WEATHER], tool_choice=NAMED, **STEADY
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert calls[0].function.name == "get_weather"
    arguments_of(calls[0].function.arguments)


async def test_a_streamed_call_is_put_together(simulated: Fleet) -> None:
    async with simulated.openai.chat.completions.stream(
        model=simulated.model, messages=HELLO, tools=[WEATHER], tool_choice=NAMED, **STEADY
    ) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in events
    calls = final.choices[0].message.tool_calls
    assert calls
    assert calls[0].function.name == "get_weather"
    arguments_of(calls[0].function.arguments)


async def test_a_demanded_call(simulated: Fleet) -> None:
    answer = await simulated.openai.chat.completions.create(
        model="sim-model", messages=HELLO, tools=[WEATHER], tool_choice="required"
    )
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_tools_that_are_not_used(fleet: Fleet) -> None:
    for choice in ("auto", "none"):
        answer = await fleet.openai.chat.completions.create(
            model=fleet.model, messages=HELLO, tools=[WEATHER], tool_choice=choice, max_tokens=4
        )
        assert not answer.choices[0].message.tool_calls


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agents_loop_stays_warm(simulated: Fleet, stream: bool) -> None:
    """The assistant's call and the tool's result are part of the prompt's identity."""
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"{stream} {LONG}"}]
    heads = []
    for number in range(3):
        create = simulated.openai.chat.completions.with_raw_response.create
        raw: Any = await create(
            model=simulated.model, messages=messages, tools=[WEATHER], tool_choice=NAMED, stream=stream, **STEADY
        )
        heads.append(raw.headers)
        call: Any = await whole(raw.parse()) if stream else raw.parse().choices[0].message.tool_calls[0].model_dump()
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{number}: rain " * 200})
    warm(heads[1], heads[0])
    warm(heads[2], heads[0])
    assert int(heads[2]["x-warmroute-matched-tokens"]) > int(heads[1]["x-warmroute-matched-tokens"])


async def whole(stream: Any) -> dict[str, Any]:
    """Return the one call that a stream tells in pieces."""
    function = {"name": "", "arguments": ""}
    ident = ""
    async for chunk in stream:
        for piece in chunk.choices[0].delta.tool_calls or ():
            ident = piece.id or ident
            function["name"] += piece.function.name or ""
            function["arguments"] += piece.function.arguments or ""
    arguments_of(function["arguments"])
    return {"id": ident, "type": "function", "function": function}


async def test_calls_in_a_history_are_found_again(fleet: Fleet) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"Look. {LONG}"}]
    heads, cached = [], []
    for number in range(3):
        raw = await fleet.openai.chat.completions.with_raw_response.create(
            model=fleet.model, messages=messages, tools=[WEATHER], max_tokens=4
        )
        heads.append(raw.headers)
        usage = raw.parse().usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        cached.append(usage.prompt_tokens_details.cached_tokens or 0)
        function: Any = {"name": "get_weather", "arguments": '{"city": "Oslo", "days": 2}'}
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": f"call-{number}", "type": "function", "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": f"call-{number}", "content": f"{number}: rain " * 200})
    warm(heads[1], heads[0])
    warm(heads[2], heads[0])
    assert 256 < cached[1] < cached[2]
