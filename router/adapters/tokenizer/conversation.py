"""Messages of a chat request, as vLLM turns them into the conversation that a template is given (vLLM 0.32)."""

from __future__ import annotations

import json
from typing import Any, Literal

from router.adapters.tokenizer.chat import Message, dicts_of, text_of
from router.adapters.tokenizer.trouble import Unrendered

ContentFormat = Literal["string", "openai"]
"""How a template wants a message's content: one text, or the list of its parts."""

ATTRIBUTION = "x-anthropic-billing-header"
"""First line of Claude Code's system prompt, another one in each request. vLLM leaves the line out."""

_TEXT_OF = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"}
"""Types of parts that are text, and the field that has it."""
_KNOWN = frozenset(
    ("audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil", "image_url", "input_audio")
    + ("name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid", "video_embeds", "video_url")
)
"""Fields of parts that vLLM knows, and hands on only where they are the part's own."""


def conversation(messages: list[Message], content_format: ContentFormat) -> list[Message]:
    """Return the conversation. Raises Unrendered for media, and for what is no message."""
    return [_message(message, content_format) for message in messages]


def _message(message: Message, content_format: ContentFormat) -> Message:
    role = text_of(message.get("role"), "a role")
    texts = _texts(message.get("content"))
    if role == "system":
        texts = _without_attribution(texts)
    joined = content_format == "string" or role == "tool"
    found: Message = {"role": role, "content": "\n".join(text for text, _ in texts) if joined else _parts(texts)}
    if role == "assistant":
        found |= _of_assistant(message)
    elif role == "tool" and "tool_call_id" in message:
        found["tool_call_id"] = message["tool_call_id"]
    found |= {name: message[name] for name in ("name", "task") if isinstance(message.get(name), str)}
    return found | {"tools": message.get("tools")} if role == "developer" else found


def _texts(content: object) -> list[tuple[str, dict[str, Any]]]:
    """Return a content's texts, each with the fields of its part that vLLM does not know and lets through."""
    if content is None:
        return []
    if isinstance(content, str):
        return [(content, {})]
    if not isinstance(content, list):
        raise Unrendered("a content is neither text nor a list")
    return [text for part in content if (text := _text(part)) is not None]


def _text(part: object) -> tuple[str, dict[str, Any]] | None:
    if isinstance(part, str):
        return part, {}
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str) or kind not in _TEXT_OF or "uuid" in part:
        raise Unrendered(f"a part of type {kind}")
    value = part.get(_TEXT_OF[kind])
    if value is None and kind in ("text", "refusal"):
        return None
    return text_of(value, "a part's text"), {name: part[name] for name in part if name not in _KNOWN}


def _without_attribution(texts: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    kept = ((text.partition("\n")[2] if text.startswith(ATTRIBUTION) else text, more) for text, more in texts)
    return [(text, more) for (text, more), (before, _) in zip(kept, texts, strict=True) if text or not before]


def _parts(texts: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} | more for text, more in texts]


def _of_assistant(message: Message) -> Message:
    found: Message = {}
    calls = dicts_of(message.get("tool_calls"), "tool_calls")
    if calls:
        found["tool_calls"] = [_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        found |= {"reasoning": reasoning, "reasoning_content": reasoning}
    return found


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with its fields in the order in which vLLM's check of the request leaves them."""
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, dict):
        raise Unrendered("a call of something else than a function")
    arguments = {"arguments": _arguments(function.get("arguments"))}
    name = {"name": text_of(function.get("name"), "a call's name")}
    more = {key: value for key, value in function.items() if key not in ("arguments", "name")}
    found = {"id": text_of(call.get("id"), "a call's id"), "function": arguments | name | more}
    if "type" in call:
        found["type"] = call["type"]
    return found | {key: value for key, value in call.items() if key not in ("id", "function", "type")}


def _arguments(given: object) -> dict[str, Any]:
    """Parse a call's arguments: templates want an object, and what is none becomes an empty one."""
    if isinstance(given, str) and given:
        try:
            given = json.loads(given)
        except json.JSONDecodeError:
            return {}
    return given if isinstance(given, dict) else {}


def without_developer(messages: list[Message]) -> list[Message]:
    """Turn the developer's messages into the system's, and all of those into one at the beginning.

    vLLM does so for templates that do not know the role, which want one system message, and that first.
    """
    if all(message["role"] != "developer" for message in messages):
        return messages
    turned = [_as_system(message) if message["role"] == "developer" else message for message in messages]
    leading = [message["role"] == "system" for message in turned]
    if sum(leading) <= 1 and (not any(leading) or leading[0]):
        return turned
    contents = [_joined(message["content"]) for message in turned if message["role"] == "system"]
    merged: Message = {"role": "system", "content": "\n\n".join(content for content in contents if content)}
    return [merged, *(message for message in turned if message["role"] != "system")]


def _as_system(message: Message) -> Message:
    return {name: value for name, value in message.items() if name != "tools"} | {"role": "system"}


def _joined(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
