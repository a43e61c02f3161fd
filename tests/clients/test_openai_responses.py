"""openai-python: the Responses API. What is stored is on one replica, and every follow-up must find it there."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from tests.clients.fleet import LONG, Fleet, at_rest, warm
from tests.rig.stage import Stage

TOOL: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    "strict": False,
}


class Harbour(BaseModel):
    """What a structured answer is parsed into."""

    name: Literal["Oslo", "Bergen"]
    ships: Literal[1, 2, 3]


async def test_a_response(fleet: Fleet) -> None:
    made = await fleet.openai.responses.create(model=fleet.model, input="Hello", max_output_tokens=9)
    assert made.status in ("completed", "incomplete")
    assert made.usage is not None
    assert 0 < made.usage.output_tokens <= 9


async def test_a_response_is_streamed_in_events(fleet: Fleet) -> None:
    async with fleet.openai.responses.stream(model=fleet.model, input="Hello", max_output_tokens=9) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert events[0] == "response.created"
    assert events[-1] == "response.completed"
    assert final.usage is not None


async def test_a_history_sent_anew_is_warm(fleet: Fleet) -> None:
    """As agents do: every turn sends all items, those of the answers too."""
    said: list[Any] = [{"role": "user", "content": LONG}]
    heads = []
    for number in range(3):
        raw = await fleet.openai.responses.with_raw_response.create(
            model=fleet.model, input=said, instructions="Be brief.", max_output_tokens=20, store=False
        )
        heads.append(raw.headers)
        said += [item.model_dump(exclude_none=True) for item in raw.parse().output]
        said.append({"role": "user", "content": f"And then, {number}?"})
    warm(heads[1], heads[0])
    warm(heads[2], heads[0])


async def test_a_tool_loop_in_items(simulated: Fleet) -> None:
    said: list[Any] = [{"role": "user", "content": LONG}]
    heads = []
    for number in range(3):
        raw = await simulated.openai.responses.with_raw_response.create(
            model="sim-model", input=said, tools=[TOOL], tool_choice={"type": "function", "name": "look"}
        )
        heads.append(raw.headers)
        (call,) = raw.parse().output
        assert call.type == "function_call"
        said.append(call.model_dump(exclude_none=True))
        said.append({"type": "function_call_output", "call_id": call.call_id, "output": f"{number}: water " * 100})
    warm(heads[1], heads[0])
    warm(heads[2], heads[0])


async def test_a_structured_response_is_parsed(fleet: Fleet) -> None:
    made = await fleet.openai.responses.parse(
        model=fleet.model, input="Name a harbour", text_format=Harbour, max_output_tokens=400, temperature=0
    )
    assert isinstance(made.output_parsed, Harbour)


async def test_a_stored_response_is_fetched_and_continued_on_the_replica_that_stores_it(simulated: Fleet) -> None:
    responses = simulated.openai.responses
    stored = {}
    for number in range(6):
        made = await responses.with_raw_response.create(model="sim-model", input=f"Number {number}")
        stored[made.parse().id] = made.headers["x-warmroute-replica"]
    assert len(set(stored.values())) == 3
    for response_id, home in stored.items():
        fetched = await responses.with_raw_response.retrieve(response_id)
        assert fetched.parse().id == response_id
        assert fetched.headers["x-warmroute-replica"] == home
        assert fetched.headers["x-warmroute-decision"] == "pinned"
    for response_id, home in stored.items():
        continued = await responses.with_raw_response.create(
            model="sim-model", input="And then?", previous_response_id=response_id
        )
        assert continued.parse().status == "completed"
        assert continued.headers["x-warmroute-replica"] == home


async def test_a_streamed_response_is_stored_too(simulated: Fleet) -> None:
    responses = simulated.openai.responses
    for number in range(4):
        async with responses.stream(model="sim-model", input=f"Number {number}") as stream:
            final = await stream.get_final_response()
        assert (await responses.retrieve(final.id)).id == final.id
        continued = await responses.create(model="sim-model", input="And then?", previous_response_id=final.id)
        assert continued.status == "completed"


async def test_a_background_response_is_cancelled_where_it_runs(stage: Stage) -> None:
    async with await at_rest(stage, time_scale=1.0) as fleet:
        for number in range(4):
            made = await fleet.openai.responses.create(
                model="sim-model",
                input=f"Number {number}",
                background=True,
                max_output_tokens=5_000,
                extra_body={"ignore_eos": True},
            )
            assert (await fleet.openai.responses.cancel(made.id)).status == "cancelled"
