"""Token counts that add up, chats whose prompts extend each other, and bodies of any shape."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.sim.tokenizer import (
    GENERATION_PROMPT_TOKENS,
    MEDIA_TOKENS,
    MESSAGE_MARKER_TOKENS,
    Tokenizer,
    answer_pieces,
    answer_text,
)

PROSE = (
    "A multi-turn chat resends the whole conversation on every turn. Turn five's prompt is turn four's prompt plus the "
    "assistant's answer plus the new user message, so a large, exactly matching prefix is guaranteed. Between turns "
    "the user is reading and typing, often for tens of seconds; what should the server be holding during that time?"
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
message_keys = st.sampled_from(["role", "content", "tool_calls", "function_call", "text", "type", "function", "name"])
odd_values = json_values | st.recursive(
    json_values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(message_keys, inner, max_size=4)
)


def test_ordinary_english_has_four_to_five_bytes_a_token():
    tokenizer = Tokenizer()
    for text in (PROSE, answer_text(3, 2_000)):
        assert 4.0 <= len(text.encode()) / len(tokenizer.encode(text)) <= 5.0


def test_pieces():
    tokenizer = Tokenizer()
    for text, count in (
        ("", 0), ("word", 1), (" word", 1), ("a word", 2), ("internationally", 2), ("don't", 3), ("end.", 2),
        ("a\nb", 2), ("    indented", 2), ("日本語", 3), ("é", 1), ("👍", 1),
    ):  # fmt: skip
        assert len(tokenizer.encode(text)) == count, text
    assert tokenizer.encode("a word")[1] == tokenizer.encode(" word")[0] != tokenizer.encode("word")[0]


def test_ids_are_the_same_in_every_process():
    assert list(Tokenizer().encode("Hello, world")) == [581400086, 1421493630, 860598577]


@given(st.text(st.characters()))
def test_any_text_has_ids_below_the_markers(text: str):
    ids = Tokenizer().encode(text)
    assert all(token < 1 << 31 for token in ids)
    assert bool(ids) == bool(text)


@given(st.text(min_size=1))
def test_an_array_from_the_cache_is_what_tokenising_gives(text: str):
    tokenizer, long_text = Tokenizer(), text * 100
    assert tokenizer.encode(long_text) == tokenizer.encode(long_text) == Tokenizer(cache_bytes=0).encode(long_text)


def test_the_cache_keeps_recent_texts_within_its_bytes():
    texts = [answer_text(seed, 100) for seed in range(10)]
    room_bytes = 3 * (max(map(len, texts)) + 400)
    tokenizer = Tokenizer(room_bytes)
    first = tokenizer.encode(texts[0])
    assert tokenizer.encode(texts[0]) is first
    for text in texts[1:3]:
        tokenizer.encode(text)
    assert tokenizer.encode(texts[0]) is first
    for text in texts[3:]:
        tokenizer.encode(text)
    assert tokenizer.encode(texts[0]) is not first


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=600))
def test_an_answer_has_exactly_the_wished_tokens(seed: int, tokens: int):
    pieces = answer_pieces(seed, tokens)
    text = answer_text(seed, tokens)
    assert "".join(pieces) == text == text.strip()
    ids = Tokenizer().encode(text)
    assert len(ids) == len(pieces) == tokens
    assert [Tokenizer().encode(piece)[0] for piece in pieces] == list(ids)


def test_answers_differ_by_seed_and_begin_alike_for_one_seed():
    assert answer_text(1, 40) != answer_text(2, 40)
    assert answer_pieces(1, 40)[:20] == answer_pieces(1, 20)
    assert answer_text(1, -1) == ""


def test_every_turns_prompt_begins_with_the_last_prompt_and_its_answer():
    tokenizer = Tokenizer()
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    messages: list[Any] = [{"role": "system", "content": PROSE}]
    prompts, answers = [], []
    for turn in range(4):
        question = {"type": "text", "text": f"question {turn}"}
        messages.append({"role": "user", "content": [question, image(f"data:image/png;base64,{turn}")]})
        prompts.append(list(tokenizer.render_chat(messages, tools)))
        answer: dict[str, Any] = {"role": "assistant", "content": answer_text(turn, 50)}
        if turn == 2:
            call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
            answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        answers.append(list(tokenizer.message_body(answer)))
        messages.append(answer)
    assert len(answers[0]) == 50
    for (before, after), answer_ids in zip(pairwise(prompts), answers, strict=False):
        assert after[: len(before) + len(answer_ids)] == before + answer_ids


def test_token_counts_of_a_chat_add_up():
    tokenizer = Tokenizer()
    messages = [{"role": "user", "content": answer_text(1, 30)}, {"role": "assistant", "content": answer_text(2, 20)}]
    closed = tokenizer.render_chat(messages, None, False)
    assert len(closed) == 50 + 2 * MESSAGE_MARKER_TOKENS
    assert len(tokenizer.render_chat(messages)) == len(closed) + GENERATION_PROMPT_TOKENS


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def rendered(message: Any, tools: Any = None) -> list[int]:
    return list(Tokenizer().render_chat([message], tools, False))


def test_what_must_differ_differs():
    user = {"role": "user", "content": "the same words"}
    different = [
        rendered(user),
        rendered({"role": "assistant", "content": "the same words"}),
        rendered({"role": "tool", "content": "the same words"}),
        rendered({"role": "user", "content": "the same Words"}),
        rendered(user, [{"type": "function", "function": {"name": "a"}}]),
        rendered(user, [{"type": "function", "function": {"name": "b"}}]),
        rendered({"role": "user", "content": ["the same words", image("data:1")]}),
        rendered({"role": "user", "content": ["the same words", image("data:2")]}),
        rendered({**user, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}),
        rendered({**user, "tool_calls": [{"function": {"name": "g", "arguments": "{}"}}]}),
    ]
    assert len({json.dumps(ids) for ids in different}) == len(different)


def test_what_is_the_same_prompt_is_the_same():
    plain = rendered({"role": "user", "content": "some words"})
    assert rendered({"role": "user", "content": [{"type": "text", "text": "some words"}]}) == plain
    assert rendered({"role": "user", "content": ["some words"]}) == plain
    assert rendered({"role": "user", "content": "some words", "tool_calls": []}) == plain
    assert rendered({"role": "user", "content": "some words"}, []) == plain
    nothing = rendered({"role": "user"})
    assert rendered({"role": "user", "content": None}) == rendered({"role": "user", "content": ""}) == nothing


def test_an_image_has_a_fixed_size_and_hangs_on_its_last_byte():
    first, second = (Tokenizer().message_body({"content": [image("data:" + "A" * 5_000 + end)]}) for end in "xy")
    assert len(first) == len(second) == MEDIA_TOKENS
    assert first[0] != second[0]


def test_tools_come_before_the_messages():
    message = {"role": "user", "content": "words"}
    with_tools = rendered(message, [{"type": "function", "function": {"name": "a"}}])
    plain = rendered(message)
    assert with_tools[-len(plain) :] == plain


@pytest.mark.parametrize(
    "messages",
    [
        "text", None, 5, {"role": "user", "content": "x"}, [None], [[]], ["a", 1],
        [{"role": 5, "content": {"a": {1: b"x"}}}],
        [{"content": [{"type": "text", "text": 5}, None, 1.5]}],
        [{"tool_calls": "x"}], [{"tool_calls": [None, {"function": 5}]}],
        [{"function_call": {"name": "f", "arguments": {"a": 1}}}],
        [{"role": "\ud800", "content": "\ud800"}],
    ],
)  # fmt: skip
def test_odd_shapes_become_tokens(messages: Any):
    assert len(Tokenizer().render_chat(messages)) >= GENERATION_PROMPT_TOKENS


def test_a_value_too_deep_to_print_is_no_error():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert len(Tokenizer().render_chat([{"role": "user", "content": {"a": deep}}])) > 0
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert len(Tokenizer().render_chat([{"role": "user", "content": [loop]}])) > 0


@given(odd_values, odd_values)
def test_whatever_json_holds_is_rendered_the_same_twice(messages: Any, tools: Any):
    assert Tokenizer().render_chat(messages, tools) == Tokenizer().render_chat(messages, tools)
