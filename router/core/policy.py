"""Policies: what a request costs on each replica. To change a term, change it here and replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import xxhash

from router.core.replica import Replica
from router.core.types import RoutingRequest, Score

OWN_WEIGHT = 13.0
"""Seconds that a second of a request's own uncached work counts for: it delays everyone behind it, evicts others'
blocks, and the next turns follow it. Chat at 5 sessions/s, 8 replicas of 300,000 tokens (hit rate, TTFT p95): 4 gave
.672 and 5.1 s, 7 .688 and 4.3 s, 9 .710 and 2.5 s, 13 .715 and 2.4 s, 17 .713 and 2.6 s; at 4 sessions/s the tail
hardly differed. docs/adr/0005-price.md has more."""

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

    @property
    def key(self) -> int | None:
        """Session hint, else the hash of the prompt's leading blocks; None for keyless requests."""
        request = self.request
        if request.session is not None or request.prompt is None:
            return request.session
        hashes = request.prompt.hashes
        return hashes[min(PREFIX_BLOCKS, len(hashes)) - 1]


Policy = Callable[[Ask], list[Score]]


def affinity(ask: Ask) -> list[Score]:
    """Wait plus own prefill plus what the placement costs others, in seconds.

    total = queue + own + balance, with own = uncached tokens / learnt rate. For a session that has a home, balance =
    (`OWN_WEIGHT` - 1) x own. A new session brings future turns wherever it goes, so on top of that it is charged
    `OWN_WEIGHT` x the whole prompt's prefill x the replica's share of recent work (1 = the fleet's mean): a shared
    prefix attracts until its replica has had about twice its fair share, and costs one prefill per replica after that.
    """
    now, prompt_tokens = ask.now, ask.prompt_tokens
    shares = [0.0] * len(ask.candidates) if ask.follow_up else _shares_of_recent_work(ask)
    scores: list[Score] = []
    matches = zip(ask.matched_blocks, ask.matched_tokens, shares, strict=True)
    for replica, (blocks, matched, share) in zip(ask.candidates, matches, strict=True):
        rate = replica.rate.tokens_per_s
        own_s = (prompt_tokens - matched) / rate
        queue_s = replica.priced_queue_s(now, own_s)
        balance_s = (OWN_WEIGHT - 1.0) * own_s + OWN_WEIGHT * prompt_tokens * share / rate
        total_s = queue_s + own_s + balance_s
        scores.append(Score(replica.replica_id, total_s, queue_s, own_s, balance_s, blocks, matched))
    return scores


def _shares_of_recent_work(ask: Ask) -> list[float]:
    recent = [replica.recent_tokens(ask.now) / replica.weight for replica in ask.candidates]
    mean = sum(recent) / len(recent) or 1.0
    return [tokens / mean for tokens in recent]


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
            (ask.prompt_tokens - matched) / replica.rate.tokens_per_s,
            0.0,
            blocks,
            matched,
        )
        for replica, total, blocks, matched in zip(
            ask.candidates, totals, ask.matched_blocks, ask.matched_tokens, strict=True
        )
    ]


POLICIES: dict[str, Policy] = {
    "affinity": affinity,
    "session-hash": session_hash,
    "prefix-hash": prefix_hash,
    "least-load": least_load,
    "round-robin": round_robin,
}
