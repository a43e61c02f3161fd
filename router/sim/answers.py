"""Bodies and stream chunks of /v1/chat/completions and /v1/completions, field for field as vLLM 0.32 writes them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from router.sim.forms import DONE, Choice, Label, Usage, UsageWish, data_event, escaped, quoted
from router.sim.options import FINGERPRINT
from router.sim.plan import Output

_FINGERPRINT_FIELD = f',"system_fingerprint":"{FINGERPRINT}"'


class _OpenAIForm(ABC):
    """What chat and completions share."""

    OBJECT = ""

    def __init__(self, label: Label, wish: UsageWish, *, token_ids: bool = False) -> None:
        self._label = label
        self._wish = wish
        self._token_ids = token_ids
        self._start = (
            f'{{"id":{quoted(label.ident)},"object":"{self.OBJECT}","created":{label.created},'
            f'"model":{quoted(label.model)},"choices":['
        )

    def opening(self) -> list[bytes]:
        return []

    def closing(self, choices: Sequence[Choice], usage: Usage) -> list[bytes]:
        if not self._wish.at_end:
            return [DONE]
        counts = self._end_usage(usage)
        return [data_event(f'{self._start}],"usage":{counts}{_FINGERPRINT_FIELD}}}'), DONE]

    def failed(self, message: str) -> list[bytes] | None:
        error = {"message": message, "type": "InternalServerError", "param": None, "code": 500}
        # The only JSON that vLLM writes with spaces.
        return [data_event(json.dumps({"error": error})), DONE]

    def _end_usage(self, usage: Usage) -> str:
        details = ""
        if usage.cached_tokens is not None:
            details = f',"prompt_tokens_details":{self._stream_details(usage)}'
        return f"{{{_counts(usage.prompt_tokens, usage.completion_tokens)}{details}}}"

    @abstractmethod
    def _stream_details(self, usage: Usage) -> str:
        """The value of `prompt_tokens_details` in a stream's usage."""

    def _chunk_usage(self, choice: Choice) -> str:
        """Usage on a chunk, where it was asked for."""
        if not self._wish.on_chunks:
            return ""
        return f',"usage":{{{_counts(len(choice.prompt), choice.sent)}{self._CHUNK_USAGE_END}}}'

    _CHUNK_USAGE_END = ""

    def _end_field(self, choice: Choice) -> str:
        return _FINGERPRINT_FIELD if choice.complete and not self._wish.at_end else ""

    def _ids(self, choice: Choice, told: int) -> str:
        return _numbers(choice.output.token_ids[told : choice.sent]) if self._token_ids else "null"

    def _finish(self, output: Output) -> str:
        return f'"{output.finish_reason}","stop_reason":{_or_null(output.stop_reason)}'

    def _whole(self, ident: dict[str, Any], usage: Usage, created_tokens: int | None) -> dict[str, Any]:
        return {
            "id": self._label.ident,
            "object": self.OBJECT.removesuffix(".chunk"),
            "created": self._label.created,
            "model": self._label.model,
            **ident,
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": _whole_usage(usage, created_tokens),
        }


class ChatForm(_OpenAIForm):
    """/v1/chat/completions."""

    OBJECT = "chat.completion.chunk"
    _CHUNK_USAGE_END = ',"completion_tokens_details":null'

    def first(self, choices: Sequence[Choice]) -> list[bytes]:
        events = []
        for choice in choices:
            ids = _numbers(choice.prompt) if self._token_ids else "null"
            counts = f',"usage":{{{_counts(len(choice.prompt), 0)}{self._CHUNK_USAGE_END}}}'
            events.append(
                data_event(
                    f'{self._start}{{"index":{choice.index},"delta":{{"role":"assistant","content":""}},'
                    f'"logprobs":null,"finish_reason":null}}]{counts if self._wish.on_chunks else ""},'
                    f'"prompt_token_ids":{ids},"prompt_text":null}}'
                )
            )
        return events

    def more(self, choice: Choice, told: int) -> list[bytes]:
        finish = self._finish(choice.output) if choice.complete else "null"
        return [
            data_event(
                f'{self._start}{{"index":{choice.index},"delta":{_delta(choice, told)},"logprobs":null,'
                f'"finish_reason":{finish},"token_ids":{self._ids(choice, told)}}}]'
                f"{self._end_field(choice)}{self._chunk_usage(choice)}}}"
            )
        ]

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        body = self._whole({"choices": [self._choice(choice) for choice in choices]}, usage, usage.created_tokens)
        ids = list(choices[0].prompt) if self._token_ids else None
        unset = dict.fromkeys(("prompt_text", "kv_transfer_params", "ec_transfer_params", "metrics"))
        return msgspec.json.encode(body | {"prompt_logprobs": None, "prompt_token_ids": ids} | unset)

    def _choice(self, choice: Choice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": _message(choice.output),
            "logprobs": None,
            "finish_reason": choice.output.finish_reason,
            "stop_reason": choice.output.stop_reason,
            "token_ids": list(choice.output.token_ids) if self._token_ids else None,
            "routed_experts": None,
        }

    def _stream_details(self, usage: Usage) -> str:
        return f'{{"cached_tokens":{usage.cached_tokens},"created_cache_tokens":{usage.created_tokens}}}'


class CompletionForm(_OpenAIForm):
    """/v1/completions."""

    OBJECT = "text_completion"

    def first(self, choices: Sequence[Choice]) -> list[bytes]:
        return []

    def more(self, choice: Choice, told: int) -> list[bytes]:
        text = "".join(choice.output.pieces[told : choice.sent])
        finish = self._finish(choice.output) if choice.complete else 'null,"stop_reason":null'
        prompt_ids = _numbers(choice.prompt) if self._token_ids and not told else "null"
        return [
            data_event(
                f'{self._start}{{"index":{choice.index},"text":"{escaped(text)}","logprobs":null,'
                f'"finish_reason":{finish},"prompt_token_ids":{prompt_ids},"token_ids":{self._ids(choice, told)}}}]'
                f"{self._end_field(choice)}{self._chunk_usage(choice)}}}"
            )
        ]

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        body = self._whole({"choices": [self._choice(choice) for choice in choices]}, usage, None)
        unset = dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "metrics"))
        return msgspec.json.encode(body | unset)

    def _choice(self, choice: Choice) -> dict[str, Any]:
        told = self._token_ids
        return {
            "index": choice.index,
            "text": choice.output.text,
            "logprobs": None,
            "finish_reason": choice.output.finish_reason,
            "stop_reason": choice.output.stop_reason,
            "token_ids": list(choice.output.token_ids) if told else None,
            "prompt_logprobs": None,
            "prompt_token_ids": list(choice.prompt) if told else None,
            "routed_experts": None,
        }

    def _stream_details(self, usage: Usage) -> str:
        return f'{{"cached_tokens":{usage.cached_tokens}}}'


def _delta(choice: Choice, told: int) -> str:
    output = choice.output
    text = escaped("".join(output.pieces[told : choice.sent]))
    if output.tool is None:
        return f'{{"content":"{text}"}}'
    if told == 0:
        # The call's name has a delta of its own; what else this event carries is left to the next one's text.
        name = quoted(output.tool.name)
        call = f'"id":"{output.tool.call_id}","type":"function","index":0,"function":{{"name":{name}'
        arguments = f',"arguments":"{text}"' if text else ""
        return f'{{"content":null,"tool_calls":[{{{call}{arguments}}}}}]}}'
    if not text:
        return "{}"
    return f'{{"content":null,"tool_calls":[{{"index":0,"function":{{"arguments":"{text}"}}}}]}}'


def _message(output: Output) -> dict[str, Any]:
    unset = dict.fromkeys(("refusal", "annotations", "audio", "function_call"))
    message = {"role": "assistant", "content": output.text, **unset}
    if output.tool is not None:
        call = {"name": output.tool.name, "arguments": "".join(output.pieces)}
        message["tool_calls"] = [{"id": output.tool.call_id, "type": "function", "function": call}]
    return message | {"reasoning": None}


def _whole_usage(usage: Usage, created_tokens: int | None) -> dict[str, Any]:
    details = None
    if usage.cached_tokens is not None:
        details = {
            "cached_tokens": usage.cached_tokens,
            "created_cache_tokens": created_tokens,
            "multimodal_tokens": None,
        }
    return {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": None,
    }


def _counts(prompt_tokens: int, completion_tokens: int) -> str:
    total = prompt_tokens + completion_tokens
    return f'"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{completion_tokens}'


def _numbers(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _or_null(text: str | None) -> str:
    return "null" if text is None else quoted(text)
