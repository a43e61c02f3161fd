"""Bodies of /v1/messages as the chats that vLLM makes of them (vLLM 0.32)."""

from __future__ import annotations

from typing import Any

from router.adapters.tokenizer.chat import Chat, Message, as_tool, dicts_of, template_arguments, text_of
from router.adapters.tokenizer.conversation import ATTRIBUTION
from router.adapters.tokenizer.template import ChatTemplate
from router.adapters.tokenizer.trouble import Unrendered

Body = dict[str, Any]


def read_messages(body: Body, template: ChatTemplate) -> Chat:
    """Return the chat. Raises Unrendered for media, and for tools that come and go within the conversation."""
    messages = dicts_of(body.get("messages"), "messages")
    inline = [message for message in messages if message.get("role") == "system"]
    merges = bool(inline) and template.wants_system_first
    system = _system_texts(body.get("system")) + (list(map(_system_text, inline)) if merges else [])
    chat: list[Message] = [{"role": "system", "content": "".join(system)}] if any(system) else []
    for message in messages:
        if message.get("role") != "system":
            chat += _turned(message)
        elif not merges and (text := _system_text(message)):
            chat.append({"role": "system", "content": text})
    return Chat(chat, _tools(body.get("tools")), _arguments(body))


def _arguments(body: Body) -> dict[str, Any]:
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        raise Unrendered("thinking is off, which means another effort to each model")
    output = body.get("output_config")
    effort = output.get("effort") if isinstance(output, dict) else None
    return template_arguments(body.get("chat_template_kwargs"), effort)


def _tools(tools: object) -> list[dict[str, Any]] | None:
    return None if tools is None else [_tool(tool) for tool in dicts_of(tools, "tools")]


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return as_tool(tool | {"parameters": tool.get("input_schema")})


def _system_texts(system: object) -> list[str]:
    if not system or isinstance(system, str):
        return [system] if isinstance(system, str) else []
    blocks = [block for block in dicts_of(system, "system") if block.get("type") == "text" and block.get("text")]
    texts = [text_of(block["text"], "a system text") for block in blocks]
    return [text for text in texts if not text.startswith(ATTRIBUTION)]


def _system_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return "" if content.startswith(ATTRIBUTION) else content
    return "".join(_system_texts(content))


def _turned(message: Message) -> list[Message]:
    """Turn one message into those of a chat: results of tools stand before what the user says with them."""
    role, content = text_of(message.get("role"), "a role"), message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    turned: Message = {"role": role}
    results: list[Message] = []
    for block in dicts_of(content, "content"):
        _add_block(block, role, turned, results)
    texts = turned.pop("texts", None)
    if texts is not None:
        turned["content"] = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]
    return results if role == "user" and texts is None else [*results, turned]


def _add_block(block: dict[str, Any], role: str, turned: Message, results: list[Message]) -> None:
    kind = block.get("type")
    if kind == "text":
        if block.get("text"):
            turned.setdefault("texts", []).append(text_of(block["text"], "a text"))
    elif kind == "thinking":
        turned["reasoning"] = turned.get("reasoning", "") + text_of(block.get("thinking"), "thinking")
    elif kind == "tool_use":
        turned.setdefault("tool_calls", []).append(_call(block))
    elif kind == "tool_result" and role == "user":
        results.append(_result(block))
    elif kind != "redacted_thinking":
        raise Unrendered(f"a block of type {kind}")


def _call(block: dict[str, Any]) -> dict[str, Any]:
    function = {"name": text_of(block.get("name"), "a call's name"), "arguments": block.get("input") or {}}
    return {"id": block.get("id"), "type": "function", "function": function}


def _result(block: dict[str, Any]) -> Message:
    content = block.get("content")
    if not isinstance(content, str):
        parts = dicts_of(content, "a result")
        if any(part.get("type") != "text" for part in parts):
            raise Unrendered("a result that is not text alone")
        content = "\n".join(text_of(part.get("text"), "a result's text") for part in parts)
    return {"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": content}
