"""What warms a replica up: it begins as the request did, to the byte, asks for one token, and has no user's word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.app.roster.openings import MAX_BYTES, opening_of
from router.core.warmth import Opening
from router.proxy.openai import read_request

SYSTEM = "You are a careful assistant. " * 40
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look. " * 100, "parameters": {}}}]
SECRET = "my own words"
USER = {"role": "user", "content": SECRET}

CHAT = {"model": "m", "messages": [{"role": "system", "content": SYSTEM}, USER]}
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", CHAT | {"tools": TOOLS, "stream": True, "temperature": 0.3, "user": "someone"}),
    ("/v1/chat/completions", {"model": "m", "messages": [USER], "tools": TOOLS}),
    ("/v1/chat/completions", CHAT | {"chat_template": "{{x}}" * 99, "chat_template_kwargs": {"thinking": True}}),
    ("/v1/chat/completions", CHAT | {"documents": [{"text": "a page " * 99}], "reasoning_effort": "high"}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "system", "content": [{"type": "text", "text": SYSTEM}]},
                      {"role": "developer", "content": "Be brief."}, USER, {"role": "system", "content": "later"}]},
    ),
    ("/v1/messages", {"model": "m", "max_tokens": 900, "system": SYSTEM, "tools": TOOLS, "messages": [USER]}),
    ("/v1/messages", {"model": "m", "max_tokens": 900, "messages": [USER], "tools": TOOLS}),
    ("/v1/responses", {"model": "m", "instructions": SYSTEM, "tools": TOOLS, "input": SECRET}),
    ("/v1/responses", {"model": "m", "input": [{"role": "system", "content": SYSTEM}, USER]}),
]  # fmt: skip


def opened(path: str, body: dict[str, Any] | bytes) -> Opening | None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return opening_of(read_request(path, data, None), data)


@pytest.mark.parametrize(("path", "body"), FORMS)
def test_it_begins_as_the_request_did_and_no_user_speaks(path: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    request = read_request(path, data, None)
    opening = opening_of(request, data)
    assert opening is not None
    assert opening.path == path
    sent = json.loads(opening.body)
    assert SECRET not in opening.body.decode()
    assert sent.get("max_tokens", sent.get("max_output_tokens")) == 1
    assert sent["stream"] is False
    assert not {"user", "temperature"} & set(sent)
    assert request.prompt is not None
    assert opening.request.prompt is not None
    blocks = request.prompt.opening_blocks
    assert blocks > 0
    assert opening.request.prompt.hashes[:blocks] == request.prompt.hashes[:blocks]
    assert len(opening.request.prompt.hashes) == blocks + 1, "the rest is one message of one character"
    assert opening.model == body.get("model", "")


def test_a_response_is_not_stored() -> None:
    opening = opened("/v1/responses", {"model": "m", "instructions": SYSTEM, "input": "x"})
    assert opening is not None
    assert json.loads(opening.body)["store"] is False


def test_a_choice_of_no_tool_is_kept_and_any_other_is_not() -> None:
    """`none` may take the tools out of the prompt; the others may constrain the token that nobody wants."""
    for choice, kept in (("none", True), ("required", False), ({"type": "function"}, False)):
        opening = opened("/v1/chat/completions", CHAT | {"tools": TOOLS, "tool_choice": choice})
        assert opening is not None
        assert ("tool_choice" in json.loads(opening.body)) is kept


@pytest.mark.parametrize(
    "fields", [{"cache_salt": "tenant-1"}, {"previous_response_id": "resp_1"}, {"conversation": "c"}]
)
def test_what_is_meant_for_one_tenant_or_one_replica_is_left_alone(fields: dict[str, str]) -> None:
    assert opened("/v1/chat/completions", CHAT | fields) is None
    assert opened("/v1/responses", {"model": "m", "instructions": SYSTEM, "input": "x"} | fields) is None


def test_a_null_salt_is_none() -> None:
    assert opened("/v1/chat/completions", CHAT | {"cache_salt": None}) is not None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [USER, {"role": "system", "content": SYSTEM}]}),
        ("/v1/completions", {"model": "m", "prompt": SYSTEM}),
        ("/v1/embeddings", {"model": "m", "messages": CHAT["messages"]}),
        ("/v1/audio/speech", {"model": "m", "input": SYSTEM}),
        ("/v1/chat/completions", {"messages": [{"role": "system", "content": "x" * MAX_BYTES}, USER]}),
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", b"[]"),
        ("/v1/chat/completions", b"not JSON"),
    ],
)
def test_what_has_no_beginning_to_share_or_is_too_long_is_none(path: str, body: dict[str, Any] | bytes) -> None:
    assert opened(path, body) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["model", "messages", "tools", "system", "input", "instructions"]), values),
    st.sampled_from(["/v1/chat/completions", "/v1/messages", "/v1/responses"]),
)
def test_nothing_raises_and_what_is_built_always_begins_alike(body: dict[str, Any], path: str) -> None:
    data = json.dumps(body).encode()
    request = read_request(path, data, None)
    opening = opening_of(request, data)
    if opening is None:
        return
    assert request.prompt is not None
    assert opening.request.prompt is not None
    blocks = request.prompt.opening_blocks
    assert opening.request.prompt.hashes[:blocks] == request.prompt.hashes[:blocks]
