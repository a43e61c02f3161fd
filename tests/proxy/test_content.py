"""Parts of a message that clients write anew in each turn, and engines do not render: marks, attribution, reasoning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.core.types import Prompt
from router.proxy.openai import read_request

LONG = "many words of a long text, " * 60
BILLING = "x-anthropic-billing-header: cc_version=2.1.197.{0}; cc_entrypoint=sdk-cli; cch={0};"


def read(*messages: dict[str, Any], path: str = "/v1/messages", **fields: Any) -> Prompt:
    body = {"model": "m", "max_tokens": 9, "messages": messages} | fields
    prompt = read_request(path, json.dumps(body).encode(), None).prompt
    assert prompt is not None
    return prompt


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "call-1", "content": content} | fields


CALL = {"type": "tool_use", "id": "call-1", "name": "read", "input": {"path": "a.txt"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 3_000}}
MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}


def loop(*last: dict[str, Any]) -> list[dict[str, Any]]:
    return [user(text(LONG)), {"role": "assistant", "content": [text("I look."), CALL]}, user(*last)]


# Claude Code marks the newest message, and takes the mark off again in the next turn.


@pytest.mark.parametrize(
    "part", [result(LONG), result([text(LONG), IMAGE]), text(LONG), IMAGE], ids=lambda part: part["type"]
)
def test_a_cache_mark_that_moves_on_changes_nothing(part: dict[str, Any]) -> None:
    marked = read(*loop(part | MARK))
    assert marked.hashes == read(*loop(part)).hashes
    grown = read(*loop(part), {"role": "assistant", "content": "Done."}, user(text("And now?") | MARK))
    assert grown.hashes[: len(marked.hashes)] == marked.hashes


def test_a_result_counts_for_its_text() -> None:
    short, long = (read(*loop(result(content))) for content in ("ok", "ok" + 10 * LONG))
    assert long.ends_bytes[-1] - short.ends_bytes[-1] == len(10 * LONG)
    in_parts = read(*loop(result([text("ok"), text(10 * LONG)])))
    assert in_parts.hashes == long.hashes


@pytest.mark.parametrize("other", [result("no"), result([text("no")]), result([IMAGE]), result(None)], ids=str)
def test_results_are_told_apart(other: dict[str, Any]) -> None:
    assert read(*loop(other)).hashes != read(*loop(result("yes"))).hashes


def test_calls_are_told_apart_by_name_and_input() -> None:
    one = read(*loop(result("ok")))
    for change in ({"name": "write"}, {"input": {"path": "b.txt"}}):
        messages = loop(result("ok"))
        messages[1] = {"role": "assistant", "content": [text("I look."), CALL | change]}
        assert read(*messages).hashes != one.hashes


def test_a_call_in_anthropics_form_is_no_image() -> None:
    """A media part counts for about 500 tokens; a call is as long as it is."""
    prompt = read(*loop(result("ok")))
    assert prompt.ends_bytes[-1] < len(LONG) + 100


def test_results_within_results_end_somewhere() -> None:
    nested: Any = "ok"
    for _ in range(400):
        nested = [result(nested)]
    assert read(*loop(result(nested))).hashes != read(*loop(result("ok"))).hashes


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
def test_reasoning_is_left_out_as_it_is_of_chats(kind: str) -> None:
    messages = loop(result("ok"))
    messages[1] = {"role": "assistant", "content": [{"type": kind, "thinking": LONG}, text("I look."), CALL]}
    assert read(*messages).hashes == read(*loop(result("ok"))).hashes


# Claude Code's attribution


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_the_attribution_of_claude_code_is_no_part_of_the_prompt(path: str) -> None:
    def asked(*parts: dict[str, Any]) -> Prompt:
        return read({"role": "system", "content": list(parts)}, user(text("Hello")), path=path)

    plain = asked(text(LONG))
    for line in map(BILLING.format, ("fa0", "d6d")):
        assert asked(text(line), text(LONG)).hashes == plain.hashes
        assert asked(text(f"{line}\n{LONG}")).hashes == plain.hashes


@pytest.mark.parametrize("separate", [True, False])
def test_nor_is_it_in_the_system_field(separate: bool) -> None:
    def asked(line: str) -> Prompt:
        return read(user(text("Hello")), system=[text(line), text(LONG)] if separate else f"{line}\n{LONG}")

    assert asked(BILLING.format("fa0")).hashes == asked(BILLING.format("d6d")).hashes
    assert asked("You are helpful.").hashes != asked(BILLING.format("d6d")).hashes


def test_a_user_may_speak_of_it() -> None:
    one, other = (read(user(text(f"{BILLING.format(sign)}\n{LONG}"))) for sign in "ab")
    assert one.hashes != other.hashes
