"""Consistent hashing: of the session, or of the prompt's beginning with bounded loads.

Of the session: the vLLM production stack's `session` routing (https://docs.vllm.ai/projects/production-stack), the vLLM
router's `consistent_hash` and smg's `consistent_hashing`
(https://github.com/lightseekorg/smg/blob/main/docs/concepts/routing/load-balancing.md), by a header that clients send.
Of the prompt's beginning: KubeAI's `PrefixHash` (https://www.kubeai.org/concepts/load-balancing/: the first 100
characters, 125 % of the mean load at most) and smg's `prefix_hash`; the bound is Mirrokni et al., Consistent Hashing
with Bounded Loads, 2018.

Simplified: a request without a session goes by the hash of its prompt's beginning, not to the replica with the fewest
requests. A prompt's beginning is what a trace's first blocks say, not a number of characters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from xxhash import xxh3_64_intdigest

from router.replay.demand import Job
from router.replay.rivals.plain import Turns
from router.replay.rivals.rival import Load, Pick

POINTS = 100
"""Of each replica on the ring; KubeAI's `replication` is 100 by default."""

BOUNDED_LOAD = 1.25
"""No replica takes more than this times the mean of requests in flight."""

PREFIX_TOKENS = 1_024
"""What a prompt's beginning is: past the 512 tokens that are the same in all of Mooncake's conversation trace, where
the first 100 characters would be one key for everybody."""


class Ring:
    """Replicas on a circle of hashes."""

    def __init__(self, replicas: int) -> None:
        points = [(xxh3_64_intdigest(f"{n} {point}".encode()), n) for n in range(replicas) for point in range(POINTS)]
        points.sort()
        self._keys = [key for key, _ in points]
        self._replicas = [replica for _, replica in points]

    def from_key(self, key: int) -> Iterator[int]:
        """Yield replicas from a key on, clockwise, some more than once."""
        start = bisect_left(self._keys, key)
        yield from self._replicas[start:]
        yield from self._replicas[:start]


def prefix_key(job: Job, block_tokens: int) -> int | None:
    """Return the hash of a prompt's beginning; None for one that is shorter than a block."""
    hashes = job.simulated.block_hashes
    blocks = min(max(1, PREFIX_TOKENS // block_tokens), job.prompt_tokens // block_tokens, len(hashes or ()))
    return xxh3_64_intdigest(hashes[blocks - 1].to_bytes(8, "little")) if hashes and blocks else None


class SessionRing:
    """Consistent hash of the session; load is not looked at."""

    def __init__(self, replicas: int, block_tokens: int) -> None:
        self._ring, self._block_tokens = Ring(replicas), block_tokens
        self._turns = Turns(replicas)

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the first replica from the session's hash on."""
        key = prefix_key(job, self._block_tokens) if job.session is None else job.session
        if key is None:
            return Pick(self._turns.best([load.requests for load in loads]))
        return Pick(next(self._ring.from_key(key)))


class BoundedPrefixHash:
    """Consistent hash of the prompt's beginning, passing over replicas that have too much."""

    def __init__(self, replicas: int, block_tokens: int) -> None:
        self._ring, self._block_tokens = Ring(replicas), block_tokens
        self._turns = Turns(replicas)

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the first replica within the bound from the beginning's hash on."""
        key = prefix_key(job, self._block_tokens)
        if key is None:
            return Pick(self._turns.best([load.requests for load in loads]))
        bound = BOUNDED_LOAD * (sum(load.requests for load in loads) + 1) / len(loads)
        return Pick(next(n for n in self._ring.from_key(key) if loads[n].requests <= bound))
