"""Bodies and stream events of /v1/messages (Anthropic's form), as vLLM 0.32 translates its own chat answers into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from router.sim.forms import Choice, Label, Usage, escaped, named_event, quoted
from router.sim.plan import Output

_INVALID_CHUNK = "Error in message stream converter."


class MessagesForm:
    """/v1/messages."""

    def __init__(self, label: Label) -> None:
        self._label = label

    def opening(self) -> list[bytes]:
        return []

    def first(self, choices: Sequence[Choice]) -> list[bytes]:
        head = (
            f'{{"type":"message_start","message":{{"id":{quoted(self._label.ident)},"type":"message",'
            f'"role":"assistant","content":[],"model":{quoted(self._label.model)},"stop_reason":null,'
            f'"stop_sequence":null,"usage":{{"input_tokens":{len(choices[0].prompt)},"output_tokens":0}}}}}}'
        )
        return [named_event("message_start", head)]

    def more(self, choice: Choice, told: int) -> list[bytes]:
        output = choice.output
        text = escaped("".join(output.pieces[told : choice.sent]))
        events = []
        if told == 0:
            events.append(named_event("content_block_start", _block_start(output)))
        if text:
            delta = f'"type":"text_delta","text":"{text}"'
            if output.tool is not None:
                delta = f'"type":"input_json_delta","partial_json":"{text}"'
            payload = f'{{"type":"content_block_delta","delta":{{{delta}}},"index":0}}'
            events.append(named_event("content_block_delta", payload))
        if choice.complete:
            events.append(named_event("content_block_stop", '{"type":"content_block_stop","index":0}'))
        return events

    def closing(self, choices: Sequence[Choice], usage: Usage) -> list[bytes]:
        reason, sequence = _stop(choices[0].output)
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": _usage(usage),
        }
        return [
            named_event("message_delta", msgspec.json.encode(delta).decode()),
            named_event("message_stop", '{"type":"message_stop"}'),
        ]

    def failed(self, message: str) -> list[bytes] | None:
        # vLLM cannot read its own error chunk here: the stream ends with this event and without message_stop.
        error = {"type": "error", "error": {"type": "internal_error", "message": _INVALID_CHUNK}}
        return [named_event("error", msgspec.json.encode(error).decode())]

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        output = choices[0].output
        reason, sequence = _stop(output)
        body: dict[str, Any] = {
            "id": self._label.ident,
            "type": "message",
            "role": "assistant",
            "content": _content(output),
            "model": self._label.model,
            "stop_reason": reason,
        }
        if sequence is not None:
            body["stop_sequence"] = sequence
        return msgspec.json.encode(body | {"usage": _usage(usage)})


def _block_start(output: Output) -> str:
    block = '"type":"text","text":""'
    if output.tool is not None:
        block = f'"type":"tool_use","id":"{output.tool.call_id}","name":{quoted(output.tool.name)},"input":{{}}'
    return f'{{"type":"content_block_start","content_block":{{{block}}},"index":0}}'


def _content(output: Output) -> list[dict[str, Any]]:
    if output.tool is None:
        return [{"type": "text", "text": output.text}]
    try:
        arguments = msgspec.json.decode("".join(output.pieces))
    except ValueError:  # Cut off by max_tokens: vLLM's tool parser then gives the raw text back.
        return [{"type": "text", "text": "".join(output.pieces)}]
    return [{"type": "tool_use", "id": output.tool.call_id, "name": output.tool.name, "input": arguments}]


def _stop(output: Output) -> tuple[str, str | None]:
    if output.finish_reason == "length":
        return "max_tokens", None
    if output.tool is not None:
        return "tool_use", None
    if output.stop_reason is not None:
        return "stop_sequence", output.stop_reason
    return "end_turn", None


def _usage(usage: Usage) -> dict[str, int]:
    """Return Anthropic's counts, in which input_tokens leaves out what the cache counts name."""
    if usage.cached_tokens is None:
        return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    return {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens - usage.created_tokens),
        "output_tokens": usage.completion_tokens,
        "cache_creation_input_tokens": usage.created_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
    }
