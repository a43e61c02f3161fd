"""Answers against those of a real vLLM 0.32.0, captured in data/vllm_answers.jsonl: same statuses, same errors word for
word, same fields in the same order with the same kinds of value."""

import json
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.sim.plan import Planner, Wish, natural_tokens
from router.sim.server import SimOptions, SimReplica
from router.sim.tokenizer import Tokenizer
from router.sim.types import EngineConfig
from tests.sim.wire import CHAT, MESSAGES, ask, chat, request

CASES = [json.loads(line) for line in (Path(__file__).parent / "data" / "vllm_answers.jsonl").read_text().splitlines()]
TINY = SimOptions(models=("tiny",), max_model_len=8192, engine=EngineConfig(block_tokens=32), time_scale=1_000)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
            },
        },
    }
]


def shape(value: Any) -> Any:
    """Return what a JSON value is made of; runs of equally made items count once."""
    if isinstance(value, dict):
        return [(name, shape(item)) for name, item in value.items()]
    if isinstance(value, list):
        return [kind for kind, _ in groupby(shape(item) for item in value)]
    return type(value).__name__


def events(text: str) -> list[Any]:
    """Return a stream's events as name and shape; runs of equally made ones count once."""
    made = []
    for event in text.strip().split("\n\n"):
        *name, data = event.split("\n")
        payload = data.removeprefix("data: ")
        made.append((name, payload if payload == "[DONE]" else shape(json.loads(payload))))
    return [kind for kind, _ in groupby(made)]


def body_of(case: dict[str, Any]) -> bytes | None:
    if "prompt_tokens" in case:
        return json.dumps({"model": "tiny", "prompt": [5] * case["prompt_tokens"], "max_tokens": 1}).encode()
    return None if case["body"] is None else case["body"].encode("latin-1")


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
async def test_as_a_real_vllm(case: dict[str, Any]) -> None:
    async with SimReplica(TINY) as replica, httpx.AsyncClient(base_url=replica.url) as client:
        answer = await client.request(case["method"], case["path"], content=body_of(case), headers=case["headers"])
    assert answer.status_code == case["status"]
    assert {name: answer.headers[name] for name in case["answer_headers"]} == case["answer_headers"]
    if case["status"] >= 400 or not case["answer"]:
        assert answer.text == case["answer"]
    elif "event-stream" in answer.headers["content-type"]:
        assert events(answer.text) == events(case["answer"])
    else:
        assert shape(answer.json()) == shape(json.loads(case["answer"]))


def test_the_captured_cases_hold_all_kinds() -> None:
    assert {case["status"] for case in CASES} == {200, 400, 404, 405}
    assert len(CASES) > 50


def planner() -> Planner:
    return Planner(Tokenizer())


def test_an_answer_is_a_function_of_the_prompt() -> None:
    prompt = Tokenizer().render_chat(MESSAGES)
    wish = Wish(limit_tokens=50, ignore_eos=True)
    first, again = planner().text(prompt, wish), planner().text(prompt, wish)
    assert first == again
    assert len(first.token_ids) == len(first.pieces) == 50
    assert planner().text(prompt, wish, index=1).text != first.text
    assert planner().text(Tokenizer().render_chat([*MESSAGES, *MESSAGES]), wish).text != first.text


def test_natural_lengths_have_a_median_of_sixty() -> None:
    lengths = sorted(natural_tokens(int(share / 1000 * 2**64)) for share in range(1000))
    assert lengths[0] >= 1
    assert 58 <= lengths[500] <= 62
    assert 150 <= lengths[900] <= 180


def test_an_answer_that_ends_by_itself_ends_with_the_end_marker() -> None:
    made = planner().text(Tokenizer().render_chat(MESSAGES), Wish(limit_tokens=5_000))
    assert (made.finish_reason, made.pieces[-1], made.token_ids[-1]) == ("stop", "", planner().end_id)
    assert list(Tokenizer().encode(made.text)) == list(made.token_ids[:-1])


@pytest.mark.parametrize("limit", [1, 3, 17])
def test_a_limit_cuts_the_same_answer_short(limit: int) -> None:
    prompt = Tokenizer().render_chat(MESSAGES)
    full, cut = planner().text(prompt, Wish(5_000)), planner().text(prompt, Wish(limit))
    assert (cut.finish_reason, len(cut.token_ids)) == ("length", limit)
    assert full.text.startswith(cut.text)


def test_a_stop_string_is_left_out_and_named() -> None:
    prompt = Tokenizer().render_chat(MESSAGES)
    full = planner().text(prompt, Wish(40, ignore_eos=True))
    third = full.pieces[2].strip()
    cut = planner().text(prompt, Wish(40, ignore_eos=True, stop=("@", third[-2:])))
    assert (cut.finish_reason, cut.stop_reason) == ("stop", third[-2:])
    assert full.text.index(third[-2:]) == len(cut.text)
    assert list(cut.token_ids) == list(full.token_ids[: len(cut.pieces)])


async def test_a_demanded_tool_call_streams_and_comes_whole() -> None:
    async with SimReplica(TINY) as replica:
        demand = partial(chat, max_tokens=200, ignore_eos=False, tools=TOOLS, tool_choice="required")
        whole = (await ask(replica.port, demand())).json()["choices"][0]
        streamed = (await ask(replica.port, demand(stream=True))).data()
    call = whole["message"]["tool_calls"][0]
    assert (whole["finish_reason"], call["type"], call["function"]["name"]) == ("tool_calls", "function", "get_weather")
    assert json.loads(call["function"]["arguments"]).keys() == {"city", "days", "unit"}
    deltas = [event["choices"][0]["delta"] for event in streamed[1:-1]]
    opening = deltas[0]["tool_calls"][0]
    assert (opening["id"], opening["function"]) == (call["id"], {"name": "get_weather"})
    arguments = [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas[1:] if delta]
    assert "".join(arguments) == call["function"]["arguments"]
    assert streamed[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_named_tool_is_called_and_the_finish_is_a_stop() -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    async with SimReplica(TINY) as replica:
        choice = (await ask(replica.port, chat(max_tokens=200, tools=TOOLS, tool_choice=named))).json()["choices"][0]
        odd = {"type": "function", "function": {"name": "other"}}
        refused = await ask(replica.port, chat(tools=TOOLS, tool_choice=odd))
    assert (choice["finish_reason"], len(choice["message"]["tool_calls"])) == ("stop", 1)
    assert (refused.status, refused.json()["error"]["param"]) == (400, "tool_choice")


async def test_a_tool_call_in_anthropics_form() -> None:
    body = {"model": "tiny", "max_tokens": 200, "messages": MESSAGES, "tool_choice": {"type": "any"}}
    body["tools"] = [{"name": "get_weather", "input_schema": TOOLS[0]["function"]["parameters"]}]  # type: ignore[index]
    async with SimReplica(TINY) as replica:
        whole = (await ask(replica.port, request("/v1/messages", body))).json()
        streamed = (await ask(replica.port, request("/v1/messages", body | {"stream": True}))).data()
    assert (whole["stop_reason"], whole["content"][0]["type"]) == ("tool_use", "tool_use")
    parts = [event["delta"]["partial_json"] for event in streamed if event["type"] == "content_block_delta"]
    assert json.loads("".join(parts)) == whole["content"][0]["input"]
    assert [event["type"] for event in streamed if event["type"] != "content_block_delta"] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_a_tool_call_in_the_responses_form() -> None:
    tool = {"type": "function"} | TOOLS[0]["function"]  # type: ignore[operator]
    body = {"input": "hello", "max_output_tokens": 200, "tools": [tool], "tool_choice": "required"}
    async with SimReplica(TINY) as replica:
        whole = (await ask(replica.port, request("/v1/responses", body))).json()
        streamed = (await ask(replica.port, request("/v1/responses", body | {"stream": True}))).data()
    assert (whole["status"], whole["output"][0]["type"]) == ("completed", "function_call")
    parts = [event["delta"] for event in streamed if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(parts) == whole["output"][0]["arguments"]
    assert [event["sequence_number"] for event in streamed] == list(range(len(streamed)))


async def test_details_are_told_only_with_the_option() -> None:
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    for details in (True, False):
        async with SimReplica(SimOptions(time_scale=1_000, prompt_tokens_details=details)) as replica:
            whole = (await ask(replica.port, chat())).json()["usage"]["prompt_tokens_details"]
            last = (await ask(replica.port, chat(**usage))).data()[-2]["usage"]
            body = {"max_tokens": 4, "messages": MESSAGES}
            message = (await ask(replica.port, request("/v1/messages", body))).json()["usage"]
        assert (whole is not None) is details
        assert ("prompt_tokens_details" in last) is details
        assert ("cache_read_input_tokens" in message) is details


async def test_usage_comes_only_when_asked_or_forced() -> None:
    async with SimReplica(SimOptions(time_scale=1_000)) as replica:
        plain = (await ask(replica.port, chat(stream=True))).data()
    async with SimReplica(SimOptions(time_scale=1_000, force_include_usage=True)) as replica:
        forced = (await ask(replica.port, chat(stream=True))).data()
    assert not any("usage" in event for event in plain[:-1])
    assert all("usage" in event for event in forced[:-1])
    assert forced[-2]["choices"] == []


async def test_a_body_that_cannot_be_shown_is_cut_in_the_error() -> None:
    async with SimReplica(TINY) as replica:
        answer = await ask(replica.port, request(CHAT, {"messages": MESSAGES, "max_tokens": "x" * 500}))
    assert answer.status == 400
    assert "x" * 200 + "...[truncated]" in answer.json()["error"]["message"]
