"""Bodies and stream events of /v1/responses, as vLLM 0.32 writes them for a model without a reasoning parser."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from router.sim.bodies import Body
from router.sim.forms import Choice, Label, Usage, escaped, named_event
from router.sim.plan import Output

_ECHOED: dict[str, Any] = {
    "instructions": None,
    "metadata": None,
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "background": False,
    "max_tool_calls": None,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "service_tier": "auto",
    "text": None,
    "top_logprobs": None,
    "truncation": "disabled",
    "user": None,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Fields of the request that the answer repeats, with their defaults."""

_ORDER = (
    "id", "created_at", "incomplete_details", "instructions", "metadata", "model", "object", "output",
    "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "background", "max_output_tokens",
    "max_tool_calls", "previous_response_id", "prompt", "reasoning", "service_tier", "status", "text", "top_logprobs",
    "truncation", "usage", "user", "presence_penalty", "frequency_penalty", "kv_transfer_params", "ec_transfer_params",
    "input_messages", "output_messages",
)  # fmt: skip


def response_record(label: Label, body: Body, limit_tokens: int) -> dict[str, Any]:
    """Return a response that has not begun; `status` is "in_progress"."""
    echoed = {name: body[name] if body.get(name) is not None else default for name, default in _ECHOED.items()}
    if not echoed["tools"]:
        echoed["tool_choice"] = "none"
    known = echoed | {
        "id": label.ident,
        "created_at": label.created,
        "model": label.model,
        "object": "response",
        "output": [],
        "max_output_tokens": limit_tokens,
        "status": "in_progress",
    }
    return {name: known.get(name) for name in _ORDER}


class ResponsesForm:
    """/v1/responses. `settled` is told the finished record."""

    def __init__(self, record: dict[str, Any], settled: Callable[[dict[str, Any]], None]) -> None:
        self._record = record
        self._settled = settled
        self._sequence = 0
        self._item = "msg_" + str(record["id"]).removeprefix("resp_")
        self._call = "fc_" + str(record["id"]).removeprefix("resp_")

    def opening(self) -> list[bytes]:
        return [self._with_record("response.created"), self._with_record("response.in_progress")]

    def first(self, choices: Sequence[Choice]) -> list[bytes]:
        if choices[0].output.tool is not None:
            item = _call_item(choices[0].output, self._call) | {"arguments": "", "status": "in_progress"}
            return [self._event("response.output_item.added", {"item": item, "output_index": 0})]
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        item = _message_item("", self._item) | {"status": "in_progress"}
        return [
            self._event("response.output_item.added", {"item": item, "output_index": 0}),
            self._event(
                "response.content_part.added",
                {"content_index": 0, "item_id": self._item, "output_index": 0, "part": part},
            ),
        ]

    def more(self, choice: Choice, told: int) -> list[bytes]:
        text = escaped("".join(choice.output.pieces[told : choice.sent]))
        if not text:
            return []
        name, item, extra = "response.output_text.delta", self._item, '"logprobs":[],'
        if choice.output.tool is not None:
            name, item, extra = "response.function_call_arguments.delta", self._call, ""
        content_index = '"content_index":0,' if extra else ""
        payload = (
            f'{{{content_index}"delta":"{text}","item_id":"{item}",{extra}"output_index":0,'
            f'"sequence_number":{self._next()},"type":"{name}"}}'
        )
        return [named_event(name, payload)]

    def closing(self, choices: Sequence[Choice], usage: Usage) -> list[bytes]:
        output = choices[0].output
        events = self._call_done(output) if output.tool is not None else self._text_done(output)
        self._settle(output, usage)
        return [*events, self._with_record("response.completed")]

    def failed(self, message: str) -> list[bytes] | None:
        self._record["status"] = "failed"
        self._settled(self._record)
        return None  # vLLM has no error event here: its server drops the connection.

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        self._settle(choices[0].output, usage)
        return msgspec.json.encode(self._record)

    def _settle(self, output: Output, usage: Usage) -> None:
        cut = output.finish_reason == "length"
        item = _message_item(output.text, self._item)
        if output.tool is not None and not cut:
            item = _call_item(output, self._call)
        self._record["output"] = [item]
        self._record["status"] = "incomplete" if cut else "completed"
        self._record["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        self._record["usage"] = _usage(usage)
        self._settled(self._record)

    def _text_done(self, output: Output) -> list[bytes]:
        text, place = output.text, {"content_index": 0, "item_id": self._item}
        part: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        done = {**place, "logprobs": [], "output_index": 0}
        return [
            self._event("response.output_text.done", done, {"text": text}),
            self._event("response.content_part.done", {**place, "output_index": 0, "part": part}),
            self._event("response.output_item.done", {"item": _message_item(text, self._item), "output_index": 0}),
        ]

    def _call_done(self, output: Output) -> list[bytes]:
        item = _call_item(output, self._call)
        done = {"arguments": item["arguments"], "item_id": self._call, "name": item["name"], "output_index": 0}
        return [
            self._event("response.function_call_arguments.done", done),
            self._event("response.output_item.done", {"item": item, "output_index": 0}),
        ]

    def _with_record(self, name: str) -> bytes:
        return self._event(name, {"response": self._record})

    def _event(self, name: str, payload: dict[str, Any], tail: dict[str, Any] | None = None) -> bytes:
        numbered = {**payload, "sequence_number": self._next(), **(tail or {}), "type": name}
        return named_event(name, msgspec.json.encode(numbered).decode())

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1


def _message_item(text: str, ident: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = (
        [{"annotations": [], "text": text, "type": "output_text", "logprobs": None}] if text else []
    )
    return {
        "id": ident, "content": content, "role": "assistant", "status": "completed", "type": "message", "phase": None,
    }  # fmt: skip


def _call_item(output: Output, ident: str) -> dict[str, Any]:
    assert output.tool is not None
    return {
        "arguments": "".join(output.pieces),
        "call_id": output.tool.call_id,
        "name": output.tool.name,
        "type": "function_call",
        "id": ident,
        "async": None,
        "caller": None,
        "namespace": None,
        "status": "completed",
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            # Told with and without --enable-prompt-tokens-details.
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.created_tokens,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
