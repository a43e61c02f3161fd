"""What the end of an answer tells of its cost, in every form, framed or not; and what a model's text can not fake."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.types import Usage
from router.proxy.feedback import ends_in_engine_error, is_engine_error, read_usage, response_id
from tests.rig.client import chunked
from tests.rig.forms import FORMS, Form
from tests.rig.stage import Stage

USAGE = (
    b'"usage":{"prompt_tokens":1706,"total_tokens":1746,"completion_tokens":40,'
    b'"prompt_tokens_details":{"cached_tokens":1632,"created_cache_tokens":64}}'
)
OF_USAGE = Usage(1706, 1632, 40, None)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_usage_and_finish_reason_are_taken_from_real_answers_of_every_form(
    stage: Stage, form: Form, stream: bool
) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    client = await stage.client(router)
    options: dict[str, Any] = (
        {"stream_options": {"include_usage": True}} if stream and form.good_end == b"data: [DONE]" else {}
    )
    for _ in range(2):
        await client.ask(form.request("some words to be cached, " * 100, max_tokens=9, stream=stream, **options))
    first, second = (record.usage for record in router.records.finished)
    stats = replica.engine.stats
    assert first.prompt_tokens == second.prompt_tokens == stats.prefix_queries_tokens / 2
    assert (first.cached_tokens, second.cached_tokens) == (0, stats.prefix_hits_tokens)
    assert second.completion_tokens == 9
    assert second.finish_reason in ("length", "max_tokens", None)


@pytest.mark.parametrize("form", [FORMS["chat"], FORMS["completions"]], ids=["chat", "completions"])
async def test_a_stream_without_usage_still_tells_its_finish_reason(stage: Stage, form: Form) -> None:
    router = await stage.router(await stage.replica())
    await stage.ask(router, form.request(stream=True, max_tokens=9))
    assert router.records.finished[0].usage == Usage(finish_reason="length")


async def test_without_prompt_tokens_details_cached_tokens_are_unknown_and_not_zero(stage: Stage) -> None:
    replica = await stage.replica(prompt_tokens_details=False)
    router = await stage.router(replica)
    await stage.ask(router, FORMS["chat"].request())
    usage = router.records.finished[0].usage
    assert usage.cached_tokens is None
    assert usage.prompt_tokens


def test_of_several_usages_the_last_counts() -> None:
    """continuous_usage_stats: usage on every chunk, cached tokens only on the last."""
    events = [b'data: {"usage":{"prompt_tokens":1706,"completion_tokens":%d}}\n\n' % number for number in range(40)]
    tail = b"".join([*events, b"data: {" + USAGE + b"}\n\n", b"data: [DONE]\n\n"])
    assert read_usage(events[0], tail) == OF_USAGE


def test_chunk_framing_is_no_obstacle() -> None:
    assert read_usage(b"", chunked(b'data: {"choices":[],' + USAGE + b"}\n\n", b"data: [DONE]\n\n")) == OF_USAGE


def test_anthropics_stream_reports_its_input_at_the_start() -> None:
    start = b'data: {"message":{"usage":{"input_tokens":20,"cache_read_input_tokens":480,"output_tokens":0}}}\n\n'
    end = b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":33}}\n\n'
    assert read_usage(start, end) == Usage(500, 480, 33, "end_turn")


def test_nothing_told_is_nothing_known() -> None:
    assert read_usage(b"", b"") == Usage()
    assert read_usage(b'{"data":[1,2,3]}', b'{"data":[1,2,3]}') == Usage()


@given(st.text())
def test_a_models_text_can_not_fake_usage(text: str) -> None:
    """Whatever the model says stands in a JSON string, where quotes are escaped."""
    said = json.dumps({"choices": [{"message": {"content": text + '"usage":{"prompt_tokens":1,"cached_tokens":1}'}}]})
    body = said.encode()[:-1] + b"," + USAGE + b"}"
    assert read_usage(body, body) == OF_USAGE


@pytest.mark.parametrize(
    "text",
    ['"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":7}}', '\ndata: {"error":', "event: error\n"],
)
def test_a_models_text_can_not_fake_its_engines_death(text: str) -> None:
    event = (
        b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}, separators=(",", ":")).encode() + b"\n\n"
    )
    assert not is_engine_error(event)
    assert not ends_in_engine_error(b"\n" + event + b"data: [DONE]\n\n")
    assert read_usage(event, event).prompt_tokens is None


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "EngineCore encountered an issue."}}\n\n',
        b'data: {"error":{"message":"x"}}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"internal_error","message":"x"}}\n\n',
    ],
)
def test_an_engines_report_of_its_death_is_known(event: bytes) -> None:
    assert is_engine_error(event)
    assert ends_in_engine_error(b'data: {"choices":[]}\n\n' + event + b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"id":"resp_0123456789abcdef","created_at":1}', "resp_0123456789abcdef"),
        (b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1"}}', "resp_1"),
        (b'{"id":"chatcmpl-1"}', None),
        (b"", None),
        (b'{"id":"resp_' + b"x" * 500 + b'"}', None),
    ],
)
def test_the_id_of_a_stored_response_is_found(data: bytes, found: str | None) -> None:
    assert response_id(data) == found


@given(st.binary(), st.binary())
def test_any_bytes_are_read_without_raising(first: bytes, tail: bytes) -> None:
    assert isinstance(read_usage(first, tail), Usage)
    is_engine_error(first)
    ends_in_engine_error(tail)
    response_id(first)
