"""What policies are asked, and the simple ones that look at one thing only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import xxhash

from router.core.replica import Replica
from router.core.types import RoutingRequest, Score

BOUNDED_LOAD = 1.25
"""`prefix-hash`: no replica takes more than this times the mean of streams (Mirrokni et al., Consistent Hashing with
Bounded Loads, 2018: c = 1.25)."""

PREFIX_BLOCKS = 8
"""`prefix-hash` keys on the first 8 blocks, about 1,000 tokens: past most system prompts' shared beginning."""


class Ask(NamedTuple):
    """A request as policies see it, beside the candidates. Lists run parallel to `candidates`."""

    candidates: list[Replica]
    prompt_tokens: int
    matched_blocks: list[int]
    matched_tokens: list[int]
    """At most `prompt_tokens`. Tokens to be credited to each candidate: its residency, or what a session hint says of
    it."""
    follow_up: bool
    """True when a candidate is believed to hold this session's own history, not only a shared prefix."""
    request: RoutingRequest
    now: float
    reloaded_tokens: list[int]
    """Of `matched_tokens`, those that are in a slower cache than the GPU's."""
    answer_tokens: float
    """Expected length of the answer."""
    sample: list[Replica] | None = None
    """The candidates that stand for all of a large fleet; None: all candidates do."""

    @property
    def key(self) -> int | None:
        """Session hint, else the hash of the prompt's leading blocks; None for keyless requests."""
        request = self.request
        if request.session is not None or request.prompt is None:
            return request.session
        hashes = request.prompt.hashes
        return hashes[min(PREFIX_BLOCKS, len(hashes)) - 1]


Policy = Callable[[Ask], list[Score]]


def least_load(ask: Ask) -> list[Score]:
    """The shortest waiting line; then the fewest streams: at a microsecond each they only break ties."""
    return _priced(ask, [replica.priced_queue_s(ask.now) + replica.streams * 1e-6 for replica in ask.candidates])


def round_robin(ask: Ask) -> list[Score]:
    """All replicas cost the same: ties go to the least recently chosen."""
    return _priced(ask, [0.0] * len(ask.candidates))


def session_hash(ask: Ask) -> list[Score]:
    """Rendezvous hashing of the session hint, else of the prompt's first blocks; load is not looked at."""
    key = ask.key
    return round_robin(ask) if key is None else _priced(ask, _rendezvous_ranks(ask, key))


def prefix_hash(ask: Ask) -> list[Score]:
    """Rendezvous hashing of the prompt's first blocks, passing over replicas above `BOUNDED_LOAD` x the mean load."""
    key = ask.key
    if key is None:
        return round_robin(ask)
    streams = [replica.streams for replica in ask.candidates]
    bound = BOUNDED_LOAD * (sum(streams) + 1) / len(streams)
    ranks = _rendezvous_ranks(ask, key)
    over = [count + 1 > max(bound, 1.0) for count in streams]
    return _priced(ask, [rank + len(ranks) * full for rank, full in zip(ranks, over, strict=True)])


def _rendezvous_ranks(ask: Ask, key: int) -> list[float]:
    weights = [xxhash.xxh3_64_intdigest(replica.replica_id.encode(), key) for replica in ask.candidates]
    order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
    ranks = [0.0] * len(order)
    for rank, index in enumerate(order):
        ranks[index] = float(rank)
    return ranks


def _priced(ask: Ask, totals: list[float]) -> list[Score]:
    return [
        Score(
            replica.replica_id,
            total,
            replica.queue_s(ask.now),
            replica.prefill.seconds(ask.prompt_tokens - matched, matched),
            0.0,
            blocks,
            matched,
        )
        for replica, total, blocks, matched in zip(
            ask.candidates, totals, ask.matched_blocks, ask.matched_tokens, strict=True
        )
    ]
