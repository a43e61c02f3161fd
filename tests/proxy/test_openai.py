"""What makes two prompts the same prefix: everything the engine's template renders, in its order, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.types import Prompt, RoutingRequest
from router.proxy.openai import read_request, stored_object_hash

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, EMBEDDINGS = "/v1/messages", "/v1/embeddings"
LONG = "many words of a long text, " * 60


def read(body: Any, path: str = CHAT, session: str | None = None) -> RoutingRequest:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_request(path, data, session)


def prompt_of(body: Any, path: str = CHAT) -> Prompt:
    prompt = read(body, path).prompt
    assert prompt is not None
    return prompt


def shared(one: Prompt, other: Prompt) -> int:
    """Number of leading blocks that both have."""
    pairs = zip(one.hashes, other.hashes, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one.hashes), len(other.hashes)))


def turns(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


TALK = turns(*(f"{number} {LONG}" for number in range(4)))
BASE = {"model": "m", "messages": TALK}


# Growing


def test_a_chat_that_grows_keeps_all_its_blocks() -> None:
    grown = prompt_of(BASE | {"messages": [*TALK, *turns("x" * 700, "y" * 700)]})
    assert shared(prompt_of(BASE), grown) == len(prompt_of(BASE).hashes)


@pytest.mark.parametrize("edited", range(4))
def test_editing_message_k_keeps_exactly_the_blocks_before_it(edited: int) -> None:
    before = prompt_of(BASE | {"messages": TALK[:edited]}).hashes if edited else []
    changed = [*TALK[:edited], TALK[edited] | {"content": "!" + TALK[edited]["content"]}, *TALK[edited + 1 :]]
    assert shared(prompt_of(BASE), prompt_of(BASE | {"messages": changed})) == len(before)


def test_the_whole_conversation_is_the_key_not_its_beginning() -> None:
    late = [*TALK[:3], {"role": "assistant", "content": TALK[3]["content"][:-1] + "?"}]
    assert prompt_of(BASE).hashes[-1] != prompt_of(BASE | {"messages": late}).hashes[-1]


@given(st.lists(st.text(min_size=1, max_size=700), min_size=1, max_size=6), st.text(max_size=50))
def test_extending_a_prompt_never_shortens_the_match(texts: list[str], more: str) -> None:
    start = [{"role": "system", "content": LONG}]
    one = prompt_of({"messages": start + turns(*texts)})
    other = prompt_of({"messages": start + turns(*texts, more or "x")})
    assert shared(one, other) == len(one.hashes)


# Scope, roles, tools, media


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other"},
        {"cache_salt": "tenant"},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"chat_template": "{{ other }}"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"documents": [{"title": "t", "text": "x"}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_the_beginning_of_the_rendered_prompt_is_another_prefix(change: dict[str, Any]) -> None:
    assert shared(prompt_of(BASE), prompt_of(BASE | change)) == 0


@pytest.mark.parametrize("salts", [("a", "b"), ("", "a"), ("ab", "a\x00b")])
def test_salts_are_apart(salts: tuple[str, str]) -> None:
    one, other = (prompt_of(BASE | {"cache_salt": salt}) for salt in salts)
    assert shared(one, other) == 0


def test_model_and_salt_do_not_run_into_each_other() -> None:
    one = prompt_of(BASE | {"model": "ab", "cache_salt": "c"})
    assert shared(one, prompt_of(BASE | {"model": "a", "cache_salt": "bc"})) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.3}, {"max_tokens": 7}, {"stream": True}, {"user": "u"}, {"seed": 3}, {"top_p": 0.1},
        {"stop": ["x"]}, {"session_id": "s"}, {"priority": 3}, {"metadata": {"a": 1}}, {"unknown": [1]}, {"tools": []},
        {"cache_salt": None}, {"tools": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_engine_does_not_render_changes_nothing(change: dict[str, Any]) -> None:
    assert prompt_of(BASE | change).hashes == prompt_of(BASE).hashes


def test_roles_matter() -> None:
    swapped = [message | {"role": "tool"} for message in TALK]
    assert shared(prompt_of(BASE), prompt_of(BASE | {"messages": swapped})) == 0


def test_borders_between_messages_matter() -> None:
    one = turns(LONG + "a", "b" + LONG)
    other = turns(LONG + "ab", LONG)
    assert shared(prompt_of({"messages": one}), prompt_of({"messages": other})) < len(
        prompt_of({"messages": one}).hashes
    )


def test_a_tool_call_is_part_of_the_prompt_and_so_are_its_arguments() -> None:
    def called(arguments: str) -> dict[str, Any]:
        function = {"name": "f", "arguments": arguments}
        call = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
        return {"messages": [TALK[0], call, {"role": "tool", "tool_call_id": "c", "content": LONG}]}

    one, other = prompt_of(called('{"a":1}')), prompt_of(called('{"a":2}'))
    assert shared(one, other) == shared(one, prompt_of({"messages": TALK[:1]}))
    assert one.hashes == prompt_of(called('{"a":1}')).hashes


def image(data: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}}
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}, part]}]}


def test_images_differ_by_the_whole_of_them() -> None:
    """Data URLs share their leading bytes: a window of the first kilobytes would take one picture for another."""
    one, other = prompt_of(image("A" * 50_000 + "B")), prompt_of(image("A" * 50_000 + "C"))
    assert one.hashes[-1] != other.hashes[-1]
    assert one.hashes == prompt_of(image("A" * 50_000 + "B")).hashes
    assert shared(one, other) > 0, "the text before them is shared"


def test_a_large_image_does_not_count_for_its_bytes() -> None:
    assert prompt_of(image("A" * 4_000_000)).ends_bytes[-1] < 10_000


def test_text_in_parts_is_the_text() -> None:
    parts = [{"type": "text", "text": LONG[:100]}, {"type": "text", "text": LONG[100:]}]
    one = prompt_of({"messages": [{"role": "user", "content": parts}]})
    assert one.hashes == prompt_of({"messages": turns(LONG)}).hashes


def test_escapes_are_the_characters_they_stand_for() -> None:
    start, end = '{"messages":[{"role":"user","content":"' + LONG, '"}]}'
    plain, escaped = start + " é\u2028/" + end, start + " \\u00e9\\u2028\\/" + end
    assert prompt_of(plain.encode()).hashes == prompt_of(escaped.encode()).hashes


def test_spacing_and_order_of_fields_do_not_matter() -> None:
    one = b'{"model":"m","messages":[{"role":"user","content":"' + LONG.encode() + b'"}]}'
    other = b'{ "messages" : [ { "content" : "' + LONG.encode() + b'" ,\n "role" : "user" } ], "model" : "m" }'
    assert prompt_of(one).hashes == prompt_of(other).hashes


# The other shapes


def test_every_shape_is_read() -> None:
    bodies = {
        CHAT: BASE,
        COMPLETIONS: {"model": "m", "prompt": LONG},
        RESPONSES: {"model": "m", "input": LONG},
        MESSAGES: BASE,
        EMBEDDINGS: {"model": "m", "input": LONG},
    }
    shapes = {path: read(body, path).shape for path, body in bodies.items()}
    assert list(shapes.values()) == ["chat", "completions", "responses", "messages", "embeddings"]
    assert all(read(body, path).prompt for path, body in bodies.items())


@pytest.mark.parametrize("prompt", [LONG, [LONG], [LONG, "second"]], ids=["text", "list", "two"])
def test_a_completions_text_alone_or_first_in_a_list_is_the_same(prompt: Any) -> None:
    assert prompt_of({"prompt": prompt}, COMPLETIONS).hashes == prompt_of({"prompt": LONG}, COMPLETIONS).hashes


def test_token_ids_are_exact_and_not_their_digits() -> None:
    ids = list(range(1_000, 2_000))
    one = prompt_of({"prompt": ids}, COMPLETIONS)
    assert one.bytes_per_token == 4.0
    assert one.ends_bytes[-1] == 4_000 or one.ends_bytes[-1] // 4 >= 896
    assert one.hashes == prompt_of({"prompt": [ids]}, COMPLETIONS).hashes
    assert shared(one, prompt_of({"prompt": [*ids[:-1], 7]}, COMPLETIONS)) >= 7
    assert shared(one, prompt_of({"prompt": [7, *ids[1:]]}, COMPLETIONS)) == 0


def test_a_response_in_messages_continues_like_a_chat() -> None:
    start = {"instructions": LONG, "input": turns(LONG)}
    output = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes " * 200}]}
    grown = {"instructions": LONG, "input": [*turns(LONG), output, {"role": "user", "content": "more " * 200}]}
    assert shared(prompt_of(start, RESPONSES), prompt_of(grown, RESPONSES)) == len(prompt_of(start, RESPONSES).hashes)


def test_anthropics_system_comes_before_the_messages() -> None:
    one = prompt_of(BASE | {"system": LONG}, MESSAGES)
    assert shared(one, prompt_of(BASE, MESSAGES)) == 0
    blocks = prompt_of(BASE | {"system": [{"type": "text", "text": LONG}]}, MESSAGES)
    assert blocks.hashes == one.hashes


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, MESSAGES, EMBEDDINGS])
def test_a_prompt_under_one_block_has_no_key(path: str) -> None:
    body = {"model": "m", "messages": turns("hi"), "prompt": "hi", "input": "hi"}
    assert read(body, path).prompt is None


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/pooling", "/v1/score", "/tokenize", "/v1/next-year"])
def test_unknown_shapes_are_not_read_but_their_model_is(path: str) -> None:
    request = read({"model": "m", "input": LONG}, path)
    assert (request.shape, request.prompt, request.model) == ("unknown", None, "m")


# Sessions


@pytest.mark.parametrize(
    ("fields", "explicit"),
    [
        ({"session_id": "s"}, True),
        ({"prompt_cache_key": "s"}, False),
        ({"conversation": "s"}, False),
        ({"conversation": {"id": "s"}}, False),
    ],
)
def test_all_session_hints_name_the_same_session(fields: dict[str, Any], explicit: bool) -> None:
    request = read(BASE | fields)
    assert request.session == read(BASE, session="s").session
    assert request.session_is_explicit is explicit


def test_the_header_comes_first_and_the_id_before_the_others() -> None:
    body = BASE | {"session_id": "body", "prompt_cache_key": "key", "conversation": "talk"}
    assert read(body, session="header").session == read(BASE, session="header").session
    assert read(body).session == read(BASE, session="body").session


@pytest.mark.parametrize("value", ["", None, 5, [], {}, {"id": 7}, {"name": "s"}])
def test_what_is_no_session_name_is_none(value: Any) -> None:
    assert read(BASE | {"session_id": value, "prompt_cache_key": value, "conversation": value}).session is None


def test_sessions_are_whole_names_within_a_model() -> None:
    names = ["1", "12", "session-1", "session-12", "Session-1", "session-1 "]
    sessions = {read(BASE, session=name).session for name in names}
    sessions |= {read(BASE | {"model": "other"}, session=name).session for name in names}
    assert len(sessions) == 12


# Stored objects


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses/resp_1", b""),
        ("/v1/responses/resp_1/cancel", b""),
        (RESPONSES, b'{"input":"x","previous_response_id":"resp_1"}'),
    ],
)
def test_a_request_that_names_a_stored_response_is_known_by_it(path: str, body: bytes) -> None:
    assert read_request(path, body, None).stored == stored_object_hash("resp_1")
    another = read_request(path.replace("_1", "_2"), body.replace(b"_1", b"_2"), None).stored
    assert another == stored_object_hash("resp_2") != stored_object_hash("resp_1")


# Every process, any body


def test_hashes_are_equal_in_every_process() -> None:
    program = (
        "import json, sys; from router.proxy.openai import read_request;"
        "r = read_request('/v1/chat/completions', sys.stdin.buffer.read(), 's');"
        "print(json.dumps([r.prompt.hashes, r.session]))"
    )
    body = json.dumps(BASE | {"cache_salt": "x", "tools": [{"type": "function"}]}).encode()
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=body,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=30,
        ).stdout
        for seed in ("0", "1234")
    }
    own = read_request(CHAT, body, "s")
    assert own.prompt is not None
    assert {json.dumps([own.prompt.hashes, own.session]).encode()} == {line.strip() for line in seen}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["model", "messages", "prompt", "input", "tools", "system", "instructions", "stream", "session_id", "cache_salt",
     "prompt_cache_key", "conversation", "previous_response_id", "chat_template", "documents", "role", "content"]
)  # fmt: skip


@given(st.dictionaries(FIELDS, JSON | st.lists(st.dictionaries(FIELDS, JSON, max_size=4), max_size=4), max_size=8))
def test_any_json_is_read_without_raising(body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    for path in (CHAT, COMPLETIONS, RESPONSES, MESSAGES, EMBEDDINGS, "/v1/responses/", "/v1/other"):
        assert read_request(path, data, None).body_bytes == len(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_raising(data: bytes) -> None:
    for path in (CHAT, COMPLETIONS, RESPONSES, MESSAGES, EMBEDDINGS, "/v1/other"):
        assert read_request(path, data, "s").body_bytes == len(data)
