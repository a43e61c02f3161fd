"""Conversations in every API's form: what their next turn sends, and what its answer says of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from router.sim.replica import SimReplica
from tests.rig.client import CHAT, Answer
from tests.rig.running import Router
from tests.rig.stage import Stage

BLOCK_TOKENS = 16
SYSTEM = "You are a careful assistant of the harbour office. Answer briefly and in plain words. " * 12
WORDS = (
    "tide", "rope", "lamp", "quay", "crane", "ferry", "gull", "buoy", "chart", "pilot", "storm", "anchor", "cargo",
    "deck", "mast", "crew", "port", "shore",
)  # fmt: skip


def text(seed: int, count: int = 150) -> str:
    """Words that no other seed begins with."""
    return " ".join([f"case-{seed}", *(WORDS[(seed * 7 + step * step) % len(WORDS)] for step in range(count))])


@dataclass
class Talk:
    """One conversation. `ask` makes the next turn's body, `take` reads its answer: prompt tokens, cached tokens."""

    number: int
    stream: bool
    turns: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    prompt: str = ""
    ids: list[int] = field(default_factory=list)

    def say(self) -> str:
        self.turns += 1
        return text(self.number * 100 + self.turns)


class ChatTalk(Talk):
    path = CHAT

    def ask(self) -> dict[str, Any]:
        if not self.history:
            self.history.append({"role": "system", "content": SYSTEM})
        self.history.append({"role": "user", "content": self.say()})
        options = {"stream_options": {"include_usage": True}} if self.stream else {}
        return {"messages": self.history, "stream": self.stream} | options

    def take(self, answer: Answer) -> tuple[int, int]:
        if self.stream:
            events = [event for event in answer.events() if event != "[DONE]"]
            said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
            usage = events[-1]["usage"]
        else:
            said, usage = answer.json()["choices"][0]["message"]["content"], answer.json()["usage"]
        self.history.append({"role": "assistant", "content": said})
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class CompletionTalk(Talk):
    path = "/v1/completions"

    def ask(self) -> dict[str, Any]:
        self.prompt += (SYSTEM if not self.prompt else "") + "\nUser: " + self.say() + "\nAnswer:"
        return {"prompt": self.prompt, "max_tokens": 60}

    def take(self, answer: Answer) -> tuple[int, int]:
        usage = answer.json()["usage"]
        self.prompt += answer.json()["choices"][0]["text"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class TokenIdTalk(Talk):
    path = "/v1/completions"

    def ask(self) -> dict[str, Any]:
        if not self.ids:
            self.ids += range(1, 500)
        turn = self.turns = self.turns + 1
        self.ids += [(self.number * 10_007 + turn * 101 + step * step) % 50_000 for step in range(211)]
        return {"prompt": self.ids, "max_tokens": 40, "return_token_ids": True}

    def take(self, answer: Answer) -> tuple[int, int]:
        usage, choice = answer.json()["usage"], answer.json()["choices"][0]
        self.ids += choice["token_ids"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class ResponsesTalk(Talk):
    path = "/v1/responses"

    def ask(self) -> dict[str, Any]:
        self.history.append({"role": "user", "content": self.say()})
        return {"instructions": SYSTEM, "input": self.history, "store": False, "stream": self.stream}

    def take(self, answer: Answer) -> tuple[int, int]:
        record = answer.events()[-1]["response"] if self.stream else answer.json()
        self.history += record["output"]
        usage = record["usage"]
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


class MessagesTalk(Talk):
    path = "/v1/messages"

    def ask(self) -> dict[str, Any]:
        self.history.append({"role": "user", "content": self.say()})
        return {"system": SYSTEM, "messages": self.history, "max_tokens": 400, "stream": self.stream}

    def take(self, answer: Answer) -> tuple[int, int]:
        if self.stream:
            events = answer.events()
            said = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
            usage = next(e["usage"] for e in events if e["type"] == "message_delta")
        else:
            said, usage = answer.json()["content"][0]["text"], answer.json()["usage"]
        self.history.append({"role": "assistant", "content": said})
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached + usage.get("cache_creation_input_tokens", 0), cached


AnyTalk = ChatTalk | CompletionTalk | TokenIdTalk | ResponsesTalk | MessagesTalk

TALKS: dict[str, Callable[[int], AnyTalk]] = {
    "chat": lambda number: ChatTalk(number, stream=False),
    "chat-stream": lambda number: ChatTalk(number, stream=True),
    "completions": lambda number: CompletionTalk(number, stream=False),
    "token-ids": lambda number: TokenIdTalk(number, stream=False),
    "responses": lambda number: ResponsesTalk(number, stream=False),
    "responses-stream": lambda number: ResponsesTalk(number, stream=True),
    "messages": lambda number: MessagesTalk(number, stream=False),
    "messages-stream": lambda number: MessagesTalk(number, stream=True),
}


async def fleet_of(stage: Stage, count: int = 4, **options: Any) -> tuple[Router, list[SimReplica]]:
    replicas = await stage.replicas(count, **options)
    router = await stage.router(*replicas, watched=True)
    await router.until(lambda: all(router.books(replica).report.kv_tokens for replica in replicas))
    return router, replicas
