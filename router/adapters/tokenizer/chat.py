"""A chat as a template is given it, whichever API it came through."""

from __future__ import annotations

from typing import Any, NamedTuple

from router.adapters.tokenizer.trouble import Unrendered

Message = dict[str, Any]


class Chat(NamedTuple):
    """What vLLM would hand to the model's chat template, and how it would tokenise the text."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    arguments: dict[str, Any] = {}
    """Further variables of the template, documents among them."""
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    """Whether the tokenizer puts its own marks around the text, which a template has written already."""


def text_of(value: object, what: str) -> str:
    """Return a text. Raises Unrendered for anything else, which the engine will refuse or read in its own way."""
    if not isinstance(value, str):
        raise Unrendered(f"{what} is no text")
    return value


def dicts_of(value: object, what: str) -> list[dict[str, Any]]:
    """Return a list of objects; None counts as an empty one. Raises Unrendered for anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Unrendered(f"{what} is no list of objects")
    return value


def as_tool(function: object) -> dict[str, Any]:
    """Return a function as vLLM hands it to a template: these fields in this order, what is missing as null."""
    if not isinstance(function, dict):
        raise Unrendered("a tool is no function")
    made = {
        "name": text_of(function.get("name"), "a tool's name"),
        "description": function.get("description"),
        "parameters": function.get("parameters"),
    }
    made |= {name: function[name] for name in ("strict", "defer_loading") if function.get(name) is not None}
    return {"type": "function", "function": made}


def template_arguments(given: object, effort: object) -> dict[str, Any]:
    """Return a request's own variables of the template. A reasoning effort also turns thinking on, or off."""
    own = {} if given is None else given
    if not isinstance(own, dict):
        raise Unrendered("chat_template_kwargs is no object")
    if effort is None:
        return own
    return {"enable_thinking": effort != "none"} | own | {"reasoning_effort": effort}
