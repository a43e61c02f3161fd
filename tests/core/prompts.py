"""Chats and texts that go on, and what is asked of them."""

from __future__ import annotations

from router.core.fleet import Fleet
from router.core.landmarks import Question, question
from router.core.prompt import BLOCK_BYTES, PromptBuilder
from router.core.types import Prompt, RoutingRequest
from tests.core.worlds import SCOPE

Said = list[tuple[str, str]]
SYSTEM = ("system", "You are helpful. " * 100)
TOOLS = ("tools", '[{"name": "look_up"}]' * 100)


def said(turns: int, name: str = "a", opening: Said | None = None) -> Said:
    messages = [SYSTEM] if opening is None else list(opening)
    messages.append(("user", f"{name} asks " * 90))
    for number in range(1, turns):
        messages += [("assistant", f"answer {number} to {name} " * 40), ("user", f"{name} asks on, {number} " * 40)]
    return messages


def text(content: bytes) -> Prompt:
    builder = PromptBuilder(SCOPE)
    builder.add_open(b"text", content)
    built = builder.build()
    assert built is not None
    return built


def completion(content: bytes) -> RoutingRequest:
    return RoutingRequest("m", "completions", text(content), len(content))


def book(blocks: int, more: bytes = b"") -> bytes:
    """A text of whole blocks, each another one, and what follows them."""
    return b"".join(b"%07d " % number * (BLOCK_BYTES // 8) for number in range(blocks)) + more


def asks(fleet: Fleet, request: RoutingRequest) -> Question:
    asking = question(fleet, request)
    assert asking is not None
    return asking
