"""The four shapes of a generating request, and how each of their streams ends, well or badly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.rig.client import HeaderLines, request

TEXT = "Tell me about the sea. "


@dataclass(frozen=True)
class Form:
    """One API: its path, its body, and the mark of a stream that ended well."""

    path: str
    prompt_field: str
    limit_field: str
    good_end: bytes

    def body(self, text: str = TEXT, *, max_tokens: int = 4, **fields: Any) -> dict[str, Any]:
        prompt: Any = text
        if self.prompt_field == "messages":
            prompt = [{"role": "user", "content": text}]
        return {"model": "sim-model", self.prompt_field: prompt, self.limit_field: max_tokens} | fields

    def request(self, text: str = TEXT, *, headers: HeaderLines = (), max_tokens: int = 4, **fields: Any) -> bytes:
        return request(self.path, self.body(text, max_tokens=max_tokens, **fields), headers=headers)

    def error_of(self, event: bytes) -> dict[str, Any]:
        """The error object of the event that a broken stream ends with, in this API's form."""
        lines = event.decode().strip("\n").split("\n")
        said: dict[str, Any] = json.loads(lines[-1].removeprefix("data: "))
        if self.path == "/v1/messages":
            assert lines[0] == "event: error"
            assert said["type"] == "error"
            assert set(said["error"]) == {"type", "message"}
            return dict(said["error"])
        if self.path == "/v1/responses":
            assert lines[0] == "event: error"
            assert said["type"] == "error"
            return said
        assert len(lines) == 1
        assert set(said["error"]) == {"message", "type", "param", "code"}
        return dict(said["error"])


FORMS = {
    "chat": Form("/v1/chat/completions", "messages", "max_tokens", b"data: [DONE]"),
    "completions": Form("/v1/completions", "prompt", "max_tokens", b"data: [DONE]"),
    "messages": Form("/v1/messages", "messages", "max_tokens", b"event: message_stop"),
    "responses": Form("/v1/responses", "input", "max_output_tokens", b"event: response.completed"),
}
