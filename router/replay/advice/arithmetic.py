"""The sums that the decision rests on, each a line."""

from __future__ import annotations

GIB = 1 << 30


def idle_ratio(think_s: float, busy_s: float) -> float:
    """Share of a pinned session's residency in which nobody computes with it, 0 to 1: think / (think + busy).

    `busy_s` is what a turn takes in the engine. 30 s of thinking after 4 s: 0.88.
    """
    return think_s / (think_s + busy_s) if think_s > 0 else 0.0


def break_even_bytes_per_s(kv_token_bytes: int, prefill_tokens_per_s: float) -> float:
    """Speed of loading from which on a token is loaded sooner than computed."""
    return kv_token_bytes * prefill_tokens_per_s


def tokens_of(gib: float, kv_token_bytes: int) -> int:
    """Tokens whose KV cache fits into so many GiB."""
    return int(gib * GIB / kv_token_bytes)


def gib_of(tokens: float, kv_token_bytes: int) -> float:
    """GiB that the KV cache of so many tokens takes."""
    return tokens * kv_token_bytes / GIB
