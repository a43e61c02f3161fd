"""From a request's body to what is to be tokenised: a chat, a text, or ids that are there already."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from router.adapters.tokenizer.anthropic import read_messages
from router.adapters.tokenizer.chat import Chat, as_tool, dicts_of, template_arguments
from router.adapters.tokenizer.responses import read_responses
from router.adapters.tokenizer.template import ChatTemplate
from router.adapters.tokenizer.trouble import Unrendered

Body = dict[str, Any]

_UNFIT = ("truncate_prompt_tokens", "prompt_embeds", "chat_template", "mm_processor_kwargs", "media_io_kwargs")
"""Fields with which the engine's prompt is not what it would be without them: cut, embedded, of another template."""

_RESERVED = frozenset({"messages", "conversation", "tools", "chat_template", "tokenize", "continue_final_message"})
"""Arguments of the template that vLLM gives itself, or refuses."""


class Text(NamedTuple):
    """A text to be completed."""

    text: str
    add_special_tokens: bool


Source: TypeAlias = "Chat | Text | array[int]"
"""What becomes the prompt's tokens."""


def read_body(shape: str, body: Body, template: ChatTemplate | None) -> Source:
    """Return what is to be tokenised. Raises Unrendered for what can't be rendered exactly."""
    if any(body.get(name) is not None for name in _UNFIT) or _has_ids(body.get("kv_transfer_params")):
        raise Unrendered("the engine makes another prompt of it")
    if shape == "completions":
        return _completion(body)
    reader = _CHATS.get(shape)
    if reader is None or template is None:
        raise Unrendered(f"{shape}, or there is no chat template")
    chat = reader(body, template)
    given = {name: value for name, value in chat.arguments.items() if value is not None and value != "auto"}
    if not _RESERVED.isdisjoint(given):
        raise Unrendered("arguments of the template that are vLLM's own")
    return chat._replace(arguments=given)


def _has_ids(transfer: object) -> bool:
    return isinstance(transfer, dict) and transfer.get("prompt_token_ids") is not None


def _completion(body: Body) -> Text | array[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return Text(prompt, body.get("add_special_tokens") is not False)
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return array("I", prompt)
    raise Unrendered("several prompts, or none")


def _read_chat(body: Body, _template: ChatTemplate) -> Chat:
    tools, documents = body.get("tools"), body.get("documents")
    given = template_arguments(body.get("chat_template_kwargs"), body.get("reasoning_effort"))
    if documents is not None:
        given = given | {"documents": dicts_of(documents, "documents")}
    return Chat(
        dicts_of(body.get("messages"), "messages"),
        None if tools is None else [_tool(tool) for tool in dicts_of(tools, "tools")],
        given,
        add_generation_prompt=body.get("add_generation_prompt") is not False,
        continue_final_message=bool(body.get("continue_final_message")),
        add_special_tokens=bool(body.get("add_special_tokens")),
    )


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type", "function") != "function" or tool.get("defer_loading") is not None:
        raise Unrendered("a tool that is no plain function")
    return as_tool(tool.get("function"))


_CHATS: dict[str, Callable[[Body, ChatTemplate], Chat]] = {
    "chat": _read_chat,
    "messages": read_messages,
    "responses": read_responses,
}
