"""What all answers to a generation have in common: choices under way, usage, and the form a kind of answer has."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from router.sim.plan import Output

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class Choice:
    """One prompt's output while it is generated."""

    index: int
    prompt: array[int]
    output: Output
    sent: int = 0
    """Output tokens told so far."""
    cached_tokens: int = 0

    @property
    def complete(self) -> bool:
        """All tokens are told."""
        return self.sent >= len(self.output.token_ids)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    """None: the server does not tell (prompt_tokens_details is off)."""
    created_tokens: int = 0
    """Tokens of full prompt blocks that were not cached before."""


@dataclass(frozen=True, slots=True)
class Label:
    """What every chunk of an answer repeats."""

    ident: str
    created: int
    """Unix seconds."""
    model: str


@dataclass(frozen=True, slots=True)
class UsageWish:
    """Whether a stream tells its usage: at the end, and on every chunk."""

    at_end: bool = False
    on_chunks: bool = False

    @classmethod
    def of(cls, stream_options: Any, *, forced: bool) -> UsageWish:
        """Read it from a request's stream_options, unless the server forces both."""
        if forced:
            return cls(True, True)
        if not isinstance(stream_options, dict) or not stream_options.get("include_usage"):
            return cls()
        return cls(True, bool(stream_options.get("continuous_usage_stats")))


class Form(Protocol):
    """One kind of answer. Each item of the lists is one event of the stream, framed as the API frames it."""

    def opening(self) -> list[bytes]:
        """Events that go out with the headers, before the engine has begun."""

    def first(self, choices: Sequence[Choice]) -> list[bytes]:
        """Events when the first token of the first choice is here."""

    def more(self, choice: Choice, told: int) -> list[bytes]:
        """Events for the tokens of a choice from `told` to `choice.sent`; the last ones close it."""

    def closing(self, choices: Sequence[Choice], usage: Usage) -> list[bytes]:
        """Events when all choices are complete."""

    def failed(self, message: str) -> list[bytes] | None:
        """Events when the engine died under the stream; None: the connection is cut."""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The answer of a request that does not stream."""


def quoted(text: str) -> str:
    """Return text as a JSON string, quotes included."""
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """Return text as it stands within a JSON string."""
    if '"' in text or "\\" in text or not text.isprintable():
        return quoted(text)[1:-1]
    return text


def data_event(payload: str) -> bytes:
    """Frame a JSON text as an OpenAI-style event."""
    return f"data: {payload}\n\n".encode()


def named_event(name: str, payload: str) -> bytes:
    """Frame a JSON text as an event with a name."""
    return f"event: {name}\ndata: {payload}\n\n".encode()


def usage_of(choices: Sequence[Choice], block_tokens: int, *, shared_prompt: bool, details: bool) -> Usage:
    """Return the usage of these choices. With `shared_prompt` (n > 1) the one prompt counts once.

    The cached tokens are those of the first choice, as in vLLM.
    """
    first = choices[0]
    prompt_tokens = len(first.prompt) if shared_prompt else sum(len(choice.prompt) for choice in choices)
    full_tokens = len(first.prompt) // block_tokens * block_tokens
    return Usage(
        prompt_tokens,
        sum(choice.sent for choice in choices),
        first.cached_tokens if details else None,
        max(0, full_tokens - first.cached_tokens),
    )
