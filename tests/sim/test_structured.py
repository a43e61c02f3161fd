"""Answers that must have a form, and the parts of prompts that vLLM leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.sim.errors import Refusal
from router.sim.prompts import anthropic_chat, chat_prompt
from router.sim.structured import demanded_text, value_of
from router.sim.tokenizer import Tokenizer

PERSON: dict[str, Any] = {
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}}},
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 18, "maximum": 30},
        "home": {"$ref": "#/$defs/place"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
        "born": {"type": "string", "format": "date"},
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "score": {"type": ["null", "number"]},
        "kind": {"const": "person"},
    },
    "required": ["name"],
}


@given(st.integers(0, 2**64 - 1))
def test_values_fit_the_schema(seed: int) -> None:
    person = value_of(seed, PERSON)
    assert list(person) == list(PERSON["properties"])
    assert 18 <= person["age"] <= 30
    assert isinstance(person["home"]["city"], str)
    assert isinstance(person["home"]["zip"], int)
    assert len(person["tags"]) == 2
    assert set(person["tags"]) <= {"a", "b"}
    assert person["born"] == "2026-01-31"
    assert isinstance(person["nick"], str)
    assert isinstance(person["score"], float)
    assert person["kind"] == "person"
    assert person == value_of(seed, PERSON)


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree: dict[str, Any] = {"type": "object", "properties": {"left": {"$ref": "#"}, "all": {"type": "array"}}}
    tree["properties"]["all"]["items"] = {"$ref": "#"}
    assert json.dumps(value_of(1, tree)).count("left") > 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "$ref", "anyOf", "items", "properties", "enum", "minimum", "minItems", "format"]
                )
                | st.text(),
                inner,
            )
        ),
    )
)
def test_no_schema_is_too_odd(schema: Any) -> None:
    json.dumps(value_of(7, schema))


def said(**body: Any) -> Any:
    text = demanded_text(body, 7)
    return None if text is None else json.loads(text)


def test_what_a_body_demands() -> None:
    one: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert said(response_format={"type": "json_schema", "json_schema": {"name": "one", "schema": one}}) == {"n": 7}
    assert said(response_format={"type": "json_object"}) == {}
    assert said(structured_outputs={"json": one}) == {"n": 7}
    assert said(structured_outputs={"json": json.dumps(one)}) == {"n": 7}
    assert demanded_text({"structured_outputs": {"choice": ["yes", "no"]}}, 7) == "no"
    assert said(response_format={"type": "text"}) is None
    assert said(structured_outputs={"regex": "a+"}) is None
    assert said() is None


@pytest.mark.parametrize(
    "body", [{"response_format": {"type": "json_schema"}}, {"structured_outputs": {"json": "{"}}], ids=str
)
def test_what_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        demanded_text(body, 7)


# What vLLM renders of Anthropic's bodies

BILLING = "x-anthropic-billing-header: cc_version=2.1.197.{0}; cch={0};"


def rendered(*messages: dict[str, Any], **fields: Any) -> list[int]:
    turned, tools = anthropic_chat({"messages": list(messages)} | fields)
    return list(chat_prompt(Tokenizer(), {"messages": turned, "tools": tools}))


@pytest.mark.parametrize("separate", [True, False])
def test_the_billing_line_is_left_out(separate: bool) -> None:
    def asked(line: str) -> list[int]:
        blocks = [{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}]
        return rendered({"role": "user", "content": "hi"}, system=blocks if separate else f"{line}\nBe brief.")

    one = asked(BILLING.format("a"))
    assert one == asked(BILLING.format("b")) == rendered({"role": "user", "content": "hi"}, system="Be brief.")


@pytest.mark.parametrize("content", ["{0}\nBe brief.", [{"type": "text", "text": "{0}\nBe brief."}]], ids=type)
def test_the_billing_line_is_left_out_of_chats(content: Any) -> None:
    def asked(line: str) -> list[int]:
        system = json.loads(json.dumps(content).replace("{0}", line))
        return list(chat_prompt(Tokenizer(), {"messages": [{"role": "system", "content": system}]}))

    assert asked(BILLING.format("a")) == asked(BILLING.format("b"))
    assert asked("One line.") != asked("Another.")


def test_marks_that_move_on_do_not_change_the_prompt() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "done"}]}
    mark = {"cache_control": {"type": "ephemeral"}}
    for part in (image, result):
        assert rendered({"role": "user", "content": [part | mark]}) == rendered({"role": "user", "content": [part]})
    assert rendered({"role": "user", "content": [result]}) == rendered(
        {"role": "user", "content": [result | {"content": "done"}]}
    )
