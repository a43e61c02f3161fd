"""What a chat template is given, and what is made of it. Real vLLM servers are asked in tests/contract."""

from __future__ import annotations

import json
from typing import Any

import jinja2
import pytest

from router.adapters.tokenizer.bodies import Text, read_body
from router.adapters.tokenizer.chat import Chat
from router.adapters.tokenizer.template import ChatTemplate
from router.adapters.tokenizer.trouble import Unrendered
from tests.adapters.tokenizer.tiny import CHATML

PARTS = (
    "{% for m in messages %}{{ m.role }}:{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}!{% endif %}"
)


def chat_template(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>"})


def rendered(source: str, shape: str = "chat", **body: Any) -> str:
    template = chat_template(source)
    chat = read_body(shape, body, template)
    assert isinstance(chat, Chat)
    return template.render(chat)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (CHATML, "string"),
        (PARTS, "openai"),
        ("{% for m in messages %}{% for p in m['content'] | list %}{{ p }}{% endfor %}{% endfor %}", "openai"),
        ("{% set later = messages[1:] %}"
         "{% for m in later %}{% for p in m.content %}{% endfor %}{% endfor %}", "openai"),
        ("{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
         "{% for m in messages %}{{ show(m.content) }}{% endfor %}", "openai"),
        ("{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
         "{% for m in messages %}{{ show(c=m.content) }}{% endfor %}", "openai"),
        ("{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}"
         "{% for m in messages %}{{ show(m.role) }}{% endfor %}", "string"),
        ("{% for m in messages %}{% set content = m.content %}"
         "{% for p in content %}{% endfor %}{% endfor %}", "openai"),
        ("{% for a, b in messages %}{% for p in a.content %}{% endfor %}{% endfor %}", "string"),
    ],
)  # fmt: skip
def test_whether_it_wants_parts_is_seen_in_its_loops(source: str, wanted: str) -> None:
    assert chat_template(source).content_format == wanted


def test_text_parts_are_joined_by_newlines_where_it_wants_a_text() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}]
    assert rendered("{{ messages[0].content }}", messages=[user(parts)]) == "a\nb\nc"
    assert rendered(PARTS, messages=[user(parts)]) == "user:[a][b][c]!"


def test_json_is_written_without_escapes_and_in_order() -> None:
    shown = rendered("{{ tools | tojson }}", messages=[user("a")], tools=[
        {"type": "function", "function": {"parameters": {"z": "<ü>", "a": 1}, "name": "f"}}])  # fmt: skip
    assert shown == (
        '[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"z": "<ü>", "a": 1}}}]'
    )


def test_arguments_of_calls_are_objects() -> None:
    def with_arguments(arguments: str) -> list[dict[str, Any]]:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return [user("a"), {"role": "assistant", "tool_calls": [call]}]

    show = "{{ messages[1].tool_calls[0].function.arguments | tojson }}"
    given = ['{"a": "ü"}', "", "no json", "[1]"]
    assert [rendered(show, messages=with_arguments(text)) for text in given] == ['{"a": "ü"}', "{}", "{}", "{}"]


def test_the_developer_is_the_system_where_the_role_is_unknown() -> None:
    messages = [user("a"), {"role": "developer", "content": "b"}, {"role": "system", "content": "c"}]
    show = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    assert rendered(show, messages=messages) == "system:b\n\nc;user:a;"
    known = show + "{# 'developer' #}"
    assert rendered(known, messages=messages) == "user:a;developer:b;system:c;"


def test_a_message_gone_on_with_is_left_open() -> None:
    messages = [user("a"), {"role": "assistant", "content": "One, "}]
    body: dict[str, Any] = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    assert rendered(CHATML, **body).endswith("<|im_start|>assistant\nOne, ")
    trimming = "{% for m in messages %}{{ m.content | trim }}.{% endfor %}"
    assert rendered(trimming, **body) == "a.One,"


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user([{"type": "image_url", "image_url": {"url": "data:x"}}])]},
        {"messages": [user([{"type": "text", "text": "a", "uuid": "1"}])]},
        {"messages": [user({"a": 1})]},
        {"messages": [user("a")], "chat_template": "x"},
        {"messages": [user("a")], "truncate_prompt_tokens": 5},
        {"messages": [user("a")], "kv_transfer_params": {"prompt_token_ids": [1]}},
        {"messages": [user("a")], "chat_template_kwargs": {"messages": []}},
        {"messages": [user("a")], "tools": [{"type": "web_search"}]},
        {"messages": []},
        {},
    ],
)
def test_what_can_not_be_rendered_exactly_is_not_rendered(body: dict[str, Any]) -> None:
    with pytest.raises(Unrendered):
        rendered(CHATML, **body)


def test_templates_are_kept_in_a_sandbox() -> None:
    with pytest.raises(jinja2.exceptions.SecurityError):
        rendered("{{ messages.__class__.__mro__ }}", messages=[user("a")])
    with pytest.raises(jinja2.exceptions.SecurityError):
        rendered("{{ messages.append(1) }}", messages=[user("a")])


def test_a_template_s_own_refusal_is_an_error_of_its_own() -> None:
    with pytest.raises(jinja2.TemplateError, match="odd roles"):
        rendered("{{ raise_exception('odd roles') }}", messages=[user("a")])


def test_messages_of_anthropic_s_become_a_chat() -> None:
    show = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }};{% endfor %}"
    messages = [
        user("a"),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}]},
        user([{"type": "text", "text": "b"}, {"type": "tool_result", "tool_use_id": "t", "content": "r"}]),
    ]
    call = json.dumps([{"id": "t", "function": {"arguments": {"x": 1}, "name": "f"}, "type": "function"}])
    wanted = f"system:s;user:a;assistant:{call};tool:r;user:b;"
    assert rendered(show, "messages", system="s", messages=messages) == wanted


def test_a_system_message_within_is_merged_where_the_template_wants_it_first() -> None:
    messages = [user("a"), {"role": "system", "content": "b"}]
    show = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    assert rendered(show, "messages", system="s", messages=messages) == "system:s;user:a;system:b;"
    refuse = "{% if m.role == 'system' %}{{ raise_exception('') }}{% endif %}"
    strict = f"{show}{{% for m in messages[1:] %}}{refuse}{{% endfor %}}"
    assert rendered(strict, "messages", system="s", messages=messages) == "system:sb;user:a;"


def test_completions_bring_a_text_or_ids() -> None:
    assert read_body("completions", {"prompt": "a"}, None) == Text("a", add_special_tokens=True)
    assert read_body("completions", {"prompt": ["a"], "add_special_tokens": False}, None) == Text("a", False)
    ids = read_body("completions", {"prompt": [1, 2]}, None)
    assert list(ids) == [1, 2]
    for prompt in (["a", "b"], [[1], [2]], [], [True], None):
        with pytest.raises(Unrendered):
            read_body("completions", {"prompt": prompt}, None)


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_responses_with_their_history_elsewhere_are_not_rendered(field: str) -> None:
    with pytest.raises(Unrendered):
        rendered(CHATML, "responses", **{"input": "a", field: "r"})
