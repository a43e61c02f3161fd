"""What an engine's own account of a finished request teaches about tokens."""

from __future__ import annotations

from router.core.latency import TokenSize
from router.core.ticket import Ticket
from router.core.tokens import TurnEnds
from router.core.types import Usage

MIN_ANSWER_TOKENS = 48
"""Answers shorter than three of vLLM's default blocks vanish in the rounding to whole blocks: nothing to learn."""


def learn_from_answer(turns: TurnEnds, size: TokenSize, ticket: Ticket, usage: Usage) -> None:
    """Correct bytes per token and the reuse of answers, and remember where this turn ended."""
    prompt = ticket.request.prompt
    if prompt is None or ticket.scale is None:
        return
    if usage.prompt_tokens is not None and prompt.bytes_per_token is None:
        size.observe(prompt.total_bytes, usage.prompt_tokens)
    if usage.cached_tokens is not None:
        _learn_answer_reuse(size, ticket, usage.cached_tokens)
    turns.put(prompt, usage.prompt_tokens or ticket.scale.total, usage.completion_tokens or 0)


def _learn_answer_reuse(size: TokenSize, ticket: Ticket, cached_tokens: int) -> None:
    scale, lease = ticket.scale, ticket.lease
    if scale is None or lease is None or scale.answer_tokens < MIN_ANSWER_TOKENS:
        return
    if lease.fresh_from != scale.anchor or not scale.answer_follows:
        return
    block = ticket.replica.block_tokens
    if cached_tokens < scale.anchor_tokens - block:
        return  # the prompt itself was evicted, which says nothing of the answer
    # Half a block is what rounding down takes off on average.
    size.observe_answer((cached_tokens + block / 2 - scale.anchor_tokens) / scale.answer_tokens)
