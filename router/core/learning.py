"""What an engine's own account of a finished request teaches about tokens."""

from __future__ import annotations

from router.core.returning import class_of
from router.core.ticket import Settlement, Ticket
from router.core.token_size import TokenSize
from router.core.tokens import ESTIMATED_RATIO, TurnEnds
from router.core.types import Outcome, Usage

SURE_BLOCKS = 2
"""Blocks of the engine by which a report may stay behind an exact prediction: it rounds down."""

MIN_ANSWER_TOKENS = 48
"""Answers shorter than three of vLLM's default blocks vanish in the rounding to whole blocks: nothing to learn."""


def settlement_of(ticket: Ticket, outcome: Outcome, served: bool, size: TokenSize) -> Settlement:
    """Return what the end of an attempt says of its replica's cache. `served`: see `Settlement`."""
    usage = outcome.usage
    answer_tokens = usage.completion_tokens or 0
    answer_bytes = int(answer_tokens * size.bytes_per_token)
    if ticket.request.prompt is not None:
        answer_bytes += ticket.request.prompt.open_bytes or 0
    return Settlement(
        served=served,
        computed=served or ticket.first_byte_s is not None,
        overestimated=usage.cached_tokens is not None and _overestimated(ticket, usage.cached_tokens),
        answer_bytes=answer_bytes,
        prompt_tokens=usage.prompt_tokens or ticket.decision.prompt_tokens,
        answer_tokens=answer_tokens,
        bytes_per_token=size.bytes_per_token,
        kind=class_of(ticket, usage),
    )


def _overestimated(ticket: Ticket, cached_tokens: int) -> bool:
    """Tell whether an engine had clearly less of a prompt than it was believed to hold.

    A false alarm costs more than an eviction noticed late: it takes all that was not used since for evicted.
    """
    if ticket.scale is None or ticket.lease is None:
        return False
    estimated = ticket.scale.estimated_tokens(ticket.lease.fresh_from)
    slack = SURE_BLOCKS * ticket.replica.block_tokens + ESTIMATED_RATIO * estimated
    return cached_tokens + slack < ticket.residency_tokens


def learn_from_answer(turns: TurnEnds, size: TokenSize, ticket: Ticket, usage: Usage) -> None:
    """Correct bytes per token and the reuse of answers, and remember where this turn ended."""
    prompt = ticket.request.prompt
    if usage.completion_tokens is not None:
        size.observe_length(usage.completion_tokens)
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
