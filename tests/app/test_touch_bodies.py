"""What is sent to renew a session's blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.app.roster.touch_bodies import LARGEST_BODY_BYTES, is_session, touch_body
from router.proxy.openai import read_request
from tests.rig.client import CHAT

LONG = "a long story " * 100
MESSAGES = [{"role": "system", "content": LONG}, {"role": "user", "content": LONG}]
TOOLS = [{"type": "function", "function": {"name": "look_up"}}]


def touched(path: str = CHAT, **fields: Any) -> dict[str, Any] | None:
    body = json.dumps({"model": "m"} | fields).encode()
    prompt = read_request(path, body, None).prompt
    assert prompt is not None
    built = touch_body(path, body, prompt.hashes[-1])
    return None if built is None else json.loads(built)


def test_what_makes_the_prompt_stays_and_the_rest_goes() -> None:
    shaping: dict[str, Any] = {
        "tools": TOOLS,
        "chat_template_kwargs": {"thinking": True},
        "cache_salt": "s",
        "documents": [],
    }
    others: dict[str, Any] = {
        "max_completion_tokens": 900,
        "response_format": {"type": "json_object"},
        "prompt_logprobs": 1,
        "n": 3,
    }
    assert touched(messages=MESSAGES, **shaping, **others) == {
        "model": "m", "messages": MESSAGES, "max_tokens": 1, "stream": False
    } | shaping  # fmt: skip


@pytest.mark.parametrize(("choice", "stays"), [("none", True), ("required", False), ("auto", False)])
def test_tools_that_the_prompt_may_leave_out_are_left_out_again(choice: str, stays: bool) -> None:
    built = touched(messages=MESSAGES, tools=TOOLS, tool_choice=choice)
    assert built is not None
    assert ("tool_choice" in built) is stays


def test_it_comes_last_where_an_engine_goes_by_priority() -> None:
    built = touched(messages=MESSAGES, priority=0)
    assert built is not None
    assert built["priority"] == 1_000_000
    unset = touched(messages=MESSAGES, priority=None)
    assert unset is not None
    assert "priority" not in unset, "an engine without priorities refuses it"


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_a_prompt_that_is_not_all_in_the_body_is_left(field: str) -> None:
    assert touched("/v1/responses", input=MESSAGES, **{field: "resp_1"}) is None
    assert touched("/v1/responses", input=MESSAGES, **{field: None}) is not None


def test_another_prompt_than_the_sessions_is_not_sent() -> None:
    body = json.dumps({"model": "m", "messages": MESSAGES}).encode()
    assert touch_body(CHAT, body, 7) is None
    assert touch_body(CHAT, b"{", 7) is None


def test_only_turns_of_sessions_are_kept() -> None:
    assert is_session(CHAT, b"{}")
    assert not is_session("/v1/embeddings", b"{}")
    assert not is_session("/tokenize", b"{}")
    assert not is_session(CHAT, b" " * (LARGEST_BODY_BYTES + 1))
