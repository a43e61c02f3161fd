"""Conversations in small: a request by its words, and a memory of sessions that is taught turn by turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from router.core.misses.sessions import Sessions
from router.core.misses.turn import Recognised
from router.core.prompt import PromptBuilder, scope_hash, session_hash
from router.core.tokens import TurnEnds
from router.core.types import Prompt, RoutingRequest

Said = list[tuple[str, str]]

SYSTEM = ("system", "You are a careful assistant of the harbour office, and brief. " * 10)
TOOLS = ("tools", '[{"name":"look","about":"looks it up"},{"name":"call","about":"calls somebody"}]')
PREAMBLE = frozenset({"template", "template-arguments", "documents", "tools"})


def question(number: int) -> tuple[str, str]:
    return "user", f"What of the {number}th ship, and of all the others that lie before the mole? " * 2


def answer(number: int) -> tuple[str, str]:
    return "assistant", f"The {number}th ship sails with the next tide, and the others when they are loaded. " * 2


def chat(turns: int, opening: Said | None = None, start: int = 0) -> Said:
    """A chat in its n-th turn."""
    said = [SYSTEM] if opening is None else list(opening)
    for number in range(start, start + turns - 1):
        said += [question(number), answer(number)]
    return [*said, question(start + turns - 1)]


def prompt_of(said: Said, model: str = "m", salt: str = "") -> Prompt:
    builder = PromptBuilder(scope_hash(model, salt))
    for role, words in said:
        builder.message += role not in PREAMBLE
        builder.add(role.encode(), words.encode())
    prompt = builder.build()
    assert prompt is not None, "under one block"
    return prompt


def asks(
    said: Said, model: str = "m", salt: str = "", session: str | None = None, shape: str = "chat"
) -> RoutingRequest:
    hint = None if session is None else session_hash(scope_hash(model), session)
    return RoutingRequest(model, shape, prompt_of(said, model, salt), 1_000, False, hint, session is not None)


def completes(text: str) -> RoutingRequest:
    builder = PromptBuilder(scope_hash("m", ""))
    builder.add_open(b"text", text.encode())
    return RoutingRequest("m", "completions", builder.build(), len(text))


def tokens_of(request: RoutingRequest) -> int:
    assert request.prompt is not None
    return request.prompt.total_bytes // 4


@dataclass
class Memory:
    """Sessions with a clock that ticks once a turn."""

    sessions: Sessions = field(default_factory=lambda: Sessions(7))
    ends: TurnEnds = field(default_factory=lambda: TurnEnds(1_000))
    now: float = 0.0

    def look(self, request: RoutingRequest) -> Recognised:
        seen = self.sessions.recognise(request, self.ends, self.now)
        assert seen is not None
        return seen

    def serve(self, request: RoutingRequest, **facts: Any) -> Recognised:
        """Recognise a request, and learn that it was served."""
        seen = self.look(request)
        told: dict[str, Any] = {
            "prompt_tokens": tokens_of(request),
            "reported": True,
            "replica": "r0",
            "epoch": 0,
        } | facts
        self.now += 10.0
        self.sessions.learn(seen, now=self.now, **told)
        return seen
