"""From a request body to the token ids of its prompts, for every API."""

from __future__ import annotations

from array import array
from typing import Any

from xxhash import xxh3_64_intdigest

from router.sim.bodies import Body, need
from router.sim.errors import Refusal, bad_value, prompt_too_long
from router.sim.tokenizer import Tokenizer

Messages = list[Any]

_BILLING = "x-anthropic-billing-header"
"""vLLM leaves this line out of system messages, of Anthropic's blocks the whole block: it holds a hash that changes."""


def scope_salt(adapter: str | None, cache_salt: Any) -> int:
    """Return the number that keeps prefixes of different adapters and salts apart; 0 for neither."""
    if adapter is None and cache_salt is None:
        return 0
    return xxh3_64_intdigest(f"{adapter}\0{cache_salt}".encode("utf-8", "surrogatepass"))


def limited(prompt: array[int], max_model_len: int) -> array[int]:
    """Return the prompt unless it is too long.

    Raises:
        Refusal: it is.
    """
    if len(prompt) > max_model_len:
        raise prompt_too_long(max_model_len)
    return prompt


def chat_prompt(tokenizer: Tokenizer, body: Body) -> array[int]:
    """Return the prompt of a chat body.

    Raises:
        Refusal: there are no messages.
    """
    if not body["messages"]:
        raise Refusal("Cannot apply chat template to an empty conversation. Provide at least one message.")
    generation = body.get("add_generation_prompt", True) is not False
    # A null or "none" tool_choice leaves the tools in the prompt, as vLLM's default does.
    messages = [_without_billing(message) for message in body["messages"]]
    return tokenizer.render_chat(messages, body.get("tools"), generation)


def _without_billing(message: Any) -> Any:
    if not _has_role(message, "system"):
        return message
    content = message.get("content")
    if isinstance(content, str):
        return message | {"content": _unbilled(content)}
    if isinstance(content, list):
        return message | {"content": [_unbilled_part(part) for part in content]}
    return message


def _unbilled_part(part: Any) -> Any:
    text = part.get("text") if isinstance(part, dict) else None
    return part | {"text": _unbilled(text)} if isinstance(text, str) else part


def _unbilled(text: str) -> str:
    return text.partition("\n")[2] if text.startswith(_BILLING) else text


def completion_prompts(tokenizer: Tokenizer, body: Body) -> list[array[int]]:
    """Return the prompts of a completion body: a text, token ids, or a list of either.

    Raises:
        Refusal: there is none, or it is neither.
    """
    prompt = body.get("prompt")
    if prompt == []:
        raise Refusal("You must pass at least one prompt")
    if prompt is None or prompt == "":
        raise bad_value("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    return texts_or_ids(tokenizer, prompt)


def texts_or_ids(tokenizer: Tokenizer, given: Any) -> list[array[int]]:
    """Return the prompts in a text, a list of token ids, or a list of either.

    Raises:
        Refusal: it is none of them, or a token id is no 32-bit number.
    """
    if isinstance(given, str):
        return [tokenizer.encode(given)]
    if isinstance(given, list) and given and all(isinstance(item, int) for item in given):
        return [_ids(given)]
    if isinstance(given, list) and given and all(isinstance(item, str | list) for item in given):
        return [tokenizer.encode(item) if isinstance(item, str) else _ids(item) for item in given]
    raise Refusal("You must pass at least one prompt")


def _ids(given: list[Any]) -> array[int]:
    try:
        return array("I", given)
    except (TypeError, OverflowError):
        odd = next(item for item in given if not isinstance(item, int) or not 0 <= item < 1 << 32)
        raise Refusal(f"Token id {odd} is out of vocabulary") from None


def embedding_prompts(tokenizer: Tokenizer, body: Body) -> list[array[int]]:
    """Return the prompts of an embeddings, pooling or classify body: `input`, or `messages`.

    Raises:
        Refusal: neither is there.
    """
    if "messages" in body:
        return [chat_prompt(tokenizer, body | {"add_generation_prompt": False})]
    need(body, "input")
    return texts_or_ids(tokenizer, body["input"])


def pair_prompts(tokenizer: Tokenizer, body: Body) -> list[array[int]]:
    """Return one prompt for each pair that a score body compares.

    Raises:
        Refusal: a side is missing, or both have several texts but not equally many.
    """
    for left_name, right_name in (("text_1", "text_2"), ("queries", "documents"), ("queries", "items")):
        if left_name in body and right_name in body:
            return _pairs(tokenizer, _listed(body[left_name]), _listed(body[right_name]))
    need(body, "queries", "documents")
    raise Refusal("You must pass at least one prompt")


def rerank_prompts(tokenizer: Tokenizer, body: Body) -> list[array[int]]:
    """Return one prompt for each document of a rerank body.

    Raises:
        Refusal: query or documents are missing.
    """
    need(body, "query", "documents")
    return _pairs(tokenizer, [body["query"]], _listed(body["documents"]))


def _pairs(tokenizer: Tokenizer, left: list[Any], right: list[Any]) -> list[array[int]]:
    if len(left) == 1:
        left = left * len(right)
    if len(left) != len(right) or not right:
        raise Refusal("Input lengths must be either 1:1, 1:N or N:N")
    pairs = ([{"content": one}, {"content": other}] for one, other in zip(left, right, strict=True))
    return [tokenizer.render_chat(pair, None, False) for pair in pairs]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def anthropic_chat(body: Body) -> tuple[Messages, list[Any] | None]:
    """Return the chat messages and tools that an Anthropic body means."""
    messages: Messages = []
    given = body.get("system")
    if system := given if isinstance(given, str) else _system_text(given):
        messages.append({"role": "system", "content": system})
    for message in body["messages"]:
        if isinstance(message, dict) and message.get("role") == "system":
            if text := _system_text(message.get("content")):
                messages.append({"role": "system", "content": text})
        else:
            messages.extend(_from_anthropic(message))
    tools = body.get("tools")
    if not isinstance(tools, list) or not tools:
        return messages, None
    return messages, [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    return {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
    }


def _system_text(system: Any) -> str:
    if isinstance(system, str):
        return "" if system.startswith(_BILLING) else system
    texts = [block.get("text") for block in system or () if isinstance(block, dict) and block.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str) and not text.startswith(_BILLING))


def _from_anthropic(message: Any) -> Messages:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return [message]
    results = [_tool_result(block) for block in content if _is(block, "tool_result")]
    calls = [_tool_use(block) for block in content if _is(block, "tool_use")]
    parts = [block for block in content if not _is(block, "tool_result", "tool_use", "thinking", "redacted_thinking")]
    turned: dict[str, Any] = {"role": message.get("role")}
    parts = [_unmarked(block) for block in parts]
    if parts:
        only_text = len(parts) == 1 and _is(parts[0], "text")
        turned["content"] = parts[0].get("text") if only_text else parts
    if calls:
        turned["tool_calls"] = calls
    return results + ([turned] if parts or calls else [])


def _is(block: Any, *kinds: str) -> bool:
    return isinstance(block, dict) and block.get("type") in kinds


def _unmarked(block: Any) -> Any:
    """Return what vLLM makes an image of: no cache mark, which moves on in each turn."""
    return {"type": "image", "source": block.get("source")} if _is(block, "image") else block


def _tool_use(block: dict[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": block.get("input")}
    return {"id": block.get("id"), "type": "function", "function": function}


def _tool_result(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if isinstance(content, list) and all(_is(part, "text") for part in content):
        content = "\n".join(str(part.get("text", "")) for part in content)
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content}


def responses_chat(body: Body, history: Messages) -> tuple[Messages, list[Any] | None]:
    """Return the chat messages and tools that a Responses body means, behind those of the responses before it."""
    messages: Messages = list(history)
    if isinstance(instructions := body.get("instructions"), str) and instructions:
        messages = [message for message in messages if not _has_role(message, "system")]
        messages.insert(0, {"role": "system", "content": instructions})
    given = body["input"]
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    else:
        messages.extend(from_item(item) for item in given or ())
    tools = [
        {"type": "function", "function": {name: tool.get(name) for name in ("name", "description", "parameters")}}
        for tool in body.get("tools") or ()
        if isinstance(tool, dict) and tool.get("type") == "function"
    ]
    return messages, tools or None


def _has_role(message: Any, role: str) -> bool:
    return isinstance(message, dict) and message.get("role") == role


def from_item(item: Any) -> Any:
    """Return the chat message that an item of a Responses body or of its answer means."""
    if not isinstance(item, dict):
        return item
    if item.get("type") == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        return {"role": "assistant", "tool_calls": [{"id": item.get("call_id"), "function": function}]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    content = item.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict) and "text" in content[0]:
        content = content[0]["text"]
    return {"role": item.get("role", "user"), "content": content}
