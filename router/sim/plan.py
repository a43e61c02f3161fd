"""What a replica is going to generate for a prompt: a function of the prompt alone, the same on every replica."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import exp
from statistics import NormalDist
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from router.sim.structured import value_of
from router.sim.tokenizer import Tokenizer, answer_pieces

_MEDIAN_TOKENS = 60
_SPREAD = 0.8
"""Sigma of the log of the answer's length, as in the chat workload."""
_LONGEST_TOKENS = 2_000
_NORMAL = NormalDist()


@dataclass(slots=True)
class ToolCall:
    """A call of one of the request's tools."""

    call_id: str
    name: str
    arguments: str
    """JSON."""


@dataclass(slots=True)
class Output:
    """One choice: its tokens and the text that each of them adds."""

    token_ids: array[int]
    pieces: list[str]
    """One per token; the end marker's is empty. With a tool call they are its arguments, behind an empty one."""
    finish_reason: str
    """stop, length or tool_calls."""
    stop_reason: str | None = None
    """The stop string that was hit."""
    tool: ToolCall | None = None

    @property
    def engine_reason(self) -> str:
        """How the engine counts the end: a tool call is a stop to it."""
        return "length" if self.finish_reason == "length" else "stop"

    @property
    def text(self) -> str:
        """All of the text; empty for a tool call."""
        return "" if self.tool is not None else "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the request says about the length of its answer."""

    limit_tokens: int
    """Never more than this, at least 1."""
    min_tokens: int = 0
    ignore_eos: bool = False
    """Go on to the limit."""
    stop: tuple[str, ...] = ()


class Planner:
    """Makes outputs. `end_id` is the token that ends a message, as the chat template writes it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.end_id = tokenizer.render_chat([{"role": "assistant", "content": ""}], None, False)[-1]

    def text(self, prompt: array[int], wish: Wish, index: int = 0) -> Output:
        """Return a plain answer; `index` tells the choices of one request apart."""
        seed = seed_of(prompt, index)
        natural = max(natural_tokens(seed), wish.min_tokens)
        stops = not wish.ignore_eos and natural < wish.limit_tokens
        pieces = answer_pieces(seed, natural if stops else wish.limit_tokens)
        reason = "stop" if stops else "length"
        ids = self._tokenizer.encode("".join(pieces))
        if wish.stop and (cut := _cut_at(pieces, wish.stop)) is not None:
            told, hit = cut
            return Output(ids[: len(told)], told, "stop", stop_reason=hit)
        if not stops:
            return Output(ids, pieces, reason)
        ids = array("I", ids)
        ids.append(self.end_id)
        return Output(ids, [*pieces, ""], reason)

    def fixed(self, text: str, wish: Wish) -> Output:
        """Return an answer that is this text, cut off where the limit is shorter."""
        ids = array("I", self._tokenizer.encode(text))
        pieces = [*_spread(text, len(ids)), ""]
        ids.append(self.end_id)
        if len(ids) > wish.limit_tokens:
            return Output(ids[: wish.limit_tokens], pieces[: wish.limit_tokens], "length")
        return Output(ids, pieces, "stop")

    def tool_call(self, prompt: array[int], tool: dict[str, Any], wish: Wish, *, named: bool) -> Output:
        """Return an answer that calls a tool, cut off where the limit is shorter."""
        seed = seed_of(prompt, 0)
        call = ToolCall(f"chatcmpl-tool-{seed:016x}", str(tool.get("name")), _arguments(seed, tool))
        message = {"tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}}]}
        ids = array("I", self._tokenizer.message_body(message))
        pieces = ["", *_spread(call.arguments, len(ids) - 1), ""]
        ids.append(self.end_id)
        if len(ids) > wish.limit_tokens:
            return Output(ids[: wish.limit_tokens], pieces[: wish.limit_tokens], "length", tool=call)
        return Output(ids, pieces, "stop" if named else "tool_calls", tool=call)


def seed_of(prompt: array[int], index: int) -> int:
    """Return a number that depends on every token of the prompt."""
    return xxh3_64_intdigest(prompt.tobytes(), index)


def natural_tokens(seed: int) -> int:
    """Return the length of an answer that nothing limits: log-normal, median 60 tokens, sigma 0.8, 1 to 2,000."""
    share = ((seed >> 11) + 0.5) / 2**53
    return max(1, min(_LONGEST_TOKENS, round(_MEDIAN_TOKENS * exp(_SPREAD * _NORMAL.inv_cdf(share)))))


def _cut_at(pieces: list[str], stops: tuple[str, ...]) -> tuple[list[str], str] | None:
    """Return the pieces up to the end of the earliest stop string, without its text, and the string."""
    text = "".join(pieces)
    found = [(text.index(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return None
    start, stop = min(found)
    kept: list[str] = []
    length = 0
    for piece in pieces:
        kept.append(piece[: max(0, start - length)])
        length += len(piece)
        if length >= start + len(stop):
            break
    return kept, stop


def _spread(text: str, parts: int) -> list[str]:
    """Cut text into so many parts of nearly equal length."""
    return [text[len(text) * part // parts : len(text) * (part + 1) // parts] for part in range(parts)]


def _arguments(seed: int, tool: dict[str, Any]) -> str:
    schema = tool.get("parameters") or tool.get("input_schema")
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return "{}"
    return msgspec.json.encode(value_of(seed, schema)).decode()
