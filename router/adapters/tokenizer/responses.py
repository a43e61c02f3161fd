"""Bodies of /v1/responses as the chats that vLLM makes of them, where the whole history is in the body (vLLM 0.32)."""

from __future__ import annotations

from typing import Any

from router.adapters.tokenizer.chat import Chat, Message, as_tool, dicts_of, template_arguments, text_of
from router.adapters.tokenizer.template import ChatTemplate
from router.adapters.tokenizer.trouble import Unrendered

Body = dict[str, Any]

_STATED = ("previous_response_id", "conversation", "prompt", "previous_input_messages")
"""Fields that name or bring a history which vLLM adds by itself."""


def read_responses(body: Body, _template: ChatTemplate) -> Chat:
    """Return the chat. Raises Unrendered for stored histories, built-in tools, media and unfinished messages.

    Unlike a chat, its text gets the tokenizer's own marks.
    """
    stated = [name for name in _STATED if body.get(name) is not None]
    if stated:
        raise Unrendered(f"the history is elsewhere: {stated[0]}")
    if body.get("truncation") not in (None, "disabled"):
        raise Unrendered("the engine cuts it to its length")
    messages: list[Message] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": text_of(body["instructions"], "instructions")})
    if isinstance(body.get("input"), str):
        messages.append({"role": "user", "content": body["input"]})
    else:
        for item in dicts_of(body.get("input"), "input"):
            _add_item(messages, item)
    return Chat(messages, _tools(body.get("tools")), _arguments(body), add_special_tokens=True)


def _arguments(body: Body) -> dict[str, Any]:
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return template_arguments(body.get("chat_template_kwargs"), effort)


def _tools(tools: object) -> list[dict[str, Any]] | None:
    found = dicts_of(tools, "tools")
    if any(tool.get("type") != "function" for tool in found):
        raise Unrendered("a tool that is no function")
    return [as_tool(tool) for tool in found] or None


def _add_item(messages: list[Message], item: dict[str, Any]) -> None:
    kind = item.get("type", "message")
    if item.get("status") in ("in_progress", "incomplete"):
        raise Unrendered("an unfinished message")
    if kind == "message" and item.get("role") == "assistant":
        _add_to_assistant(messages, "content", _first_text(item.get("content")))
    elif kind == "message":
        messages.append({"role": item.get("role"), "content": item.get("content")})
    elif kind == "reasoning":
        _add_to_assistant(messages, "reasoning", _reasoning(item))
    elif kind == "function_call":
        _add_call(messages, item)
    elif kind == "function_call_output":
        output = text_of(item.get("output"), "an output")
        messages.append({"role": "tool", "content": output, "tool_call_id": item.get("call_id")})
    else:
        raise Unrendered(f"an item of type {kind}")


def _reasoning(item: dict[str, Any]) -> str:
    content = dicts_of(item.get("content"), "reasoning")
    if item.get("encrypted_content") or not content:
        raise Unrendered("reasoning without its text")
    return text_of(content[0].get("text"), "reasoning")


def _first_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = dicts_of(content, "content")
    if len(parts) != 1:
        raise Unrendered("an answer of several parts, of which vLLM reads the first")
    return text_of(parts[0].get("text"), "an answer's text")


def _add_to_assistant(messages: list[Message], field: str, value: object) -> None:
    """Put it into the assistant's message before it where that has none, else into a new one."""
    if messages and messages[-1]["role"] == "assistant" and messages[-1].get(field) is None:
        messages[-1][field] = value
    else:
        messages.append({"role": "assistant", field: value})


def _add_call(messages: list[Message], item: dict[str, Any]) -> None:
    if item.get("namespace"):
        raise Unrendered("a call within a namespace")
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    calls = messages[-1].get("tool_calls") if messages and messages[-1]["role"] == "assistant" else None
    if calls is None:
        _add_to_assistant(messages, "tool_calls", [call])
    else:
        calls.append(call)
