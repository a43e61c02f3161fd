"""The requests that doctor sends, made of words drawn by chance, and what their answers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from router.app.doctor.asking import Reply

GENERATE_S = 20.0
"""A prefill of 2,000 tokens and a few tokens of answer; a busy fleet takes seconds."""

_VOCABULARY = """
sea wind harbour lamp rope tide anchor mast sail storm island map star river stone bridge door window garden
road field light paper table chair letter number morning evening summer winter market kitchen music picture
train north south east west green blue red grey small large early late open quiet slow quick old new long
short
"""
"""Common words: one token each for most models, and hardly ever more than three."""

_EXPLAINING = {"cause", "change", "message", "role", "lost"}

_WORDS = _VOCABULARY.split()


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's answer."""

    reply: Reply
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """None: the answer does not say."""
    text: str = ""

    @property
    def replica(self) -> str | None:
        """The router's id of the replica that answered."""
        return self._told("replica")

    @property
    def reason(self) -> str:
        """Why that one."""
        return self._told("decision") or ""

    @property
    def explained(self) -> str:
        """What the router says of a turn that missed, on request: members of a dictionary, without ids."""
        members = (self._told("explain") or "").split(", ")
        return ", ".join(member for member in members if member.partition("=")[0] in _EXPLAINING)

    @property
    def matched_tokens(self) -> int | None:
        """Prompt tokens that the replica was believed to hold."""
        told = self._told("matched-tokens") or ""
        return int(told) if told.isdecimal() else None

    def _told(self, name: str) -> str | None:
        value: str | None = self.reply.headers.get(f"x-warmroute-{name}")
        return value


def text_of(chance: Random, words: int) -> str:
    """Return that many words, which begin with a number that nobody else draws."""
    return " ".join([f"{chance.getrandbits(64):016x}", *chance.choices(_WORDS, k=max(0, words - 1))])


def chat_body(model: str, said: Sequence[str], tokens: int) -> dict[str, Any]:
    """Return a chat in which user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(said)]
    return {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0}


def completion_body(model: str, said: Sequence[str], tokens: int) -> dict[str, Any]:
    """Return a text to be completed, for models without a chat template."""
    return {"model": model, "prompt": "".join(said), "max_tokens": tokens, "temperature": 0}


def read_turn(reply: Reply) -> Turn:
    """Read an answer of either kind."""
    told = reply.told if reply.ok else {}
    usage = _mapping(told.get("usage"))
    details = _mapping(usage.get("prompt_tokens_details"))
    choices = told.get("choices")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    text = _mapping(choice.get("message")).get("content") or choice.get("text")
    return Turn(
        reply,
        _count(usage.get("prompt_tokens")),
        _count(details.get("cached_tokens")),
        text if isinstance(text, str) else "",
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
