"""Chats whose history a test changes between turns, and what the router says of each turn in its three ways."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from router.core.misses.types import TurnAccount
from tests.rig.client import CHAT, Answer, Client, request
from tests.rig.running import Router
from tests.rig.talks import BLOCK_TOKENS, SYSTEM, text

EXPLAIN = "x-warmroute-explain"


def whole_blocks(tokens: int) -> int:
    return tokens // BLOCK_TOKENS * BLOCK_TOKENS


def dictionary(said: str | None) -> dict[str, str]:
    """The members of a dictionary of RFC 8941, as they are written."""
    assert said is not None
    return dict(member.split("=", 1) for member in said.split(", "))


@dataclass
class Seen:
    """One turn: its answer, the engine's count of tokens, and the router's account in its record."""

    answer: Answer
    prompt_tokens: int
    cached_tokens: int
    turn: TurnAccount
    predicted_tokens: int
    """Length of the prompt as it was estimated before it was sent."""

    @property
    def header(self) -> dict[str, str]:
        return dictionary(self.answer.header(EXPLAIN))


@dataclass
class Conversation:
    """A chat of a client that keeps its history, as `body`, and asks what became of it."""

    router: Router
    client: Client
    name: int = 0
    body: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.body = {
            "model": "sim-model",
            "messages": [{"role": "system", "content": SYSTEM}],
            "max_tokens": 40,
        } | self.body

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    async def say(self, words: str | None = None) -> Seen:
        """Ask the next question, and keep the answer."""
        number = len(self.messages)
        content = text(self.name * 1000 + number) if words is None else words
        self.messages.append({"role": "user", "content": content})
        seen = await self.send()
        self.messages.append({"role": "assistant", "content": seen.answer.json()["choices"][0]["message"]["content"]})
        return seen

    async def send(self) -> Seen:
        """Send the history as it is."""
        known = len(self.router.records.finished)
        sent = request(CHAT, deepcopy(self.body), headers=((EXPLAIN, "1"),))
        answer = await self.client.ask(sent)
        assert answer.status == 200, answer.body
        await self.router.until(lambda: len(self.router.records.finished) > known)
        record = self.router.records.finished[-1]
        turn, decision = record.turn, record.decision
        assert turn is not None
        assert decision is not None
        usage = answer.json()["usage"]
        cached_tokens = usage["prompt_tokens_details"]["cached_tokens"]
        return Seen(answer, usage["prompt_tokens"], cached_tokens, turn, decision.prompt_tokens)

    async def turns(self, count: int) -> list[Seen]:
        return [await self.say() for _ in range(count)]
