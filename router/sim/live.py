"""What an engine knows of a request between submit and its end."""

from __future__ import annotations

from collections.abc import Sequence

from router.sim.blocks import chain_hashes, pack_ids
from router.sim.types import SimRequest

_MASK_64 = (1 << 64) - 1
_SALT_STEP = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: small salts and the small consecutive ids of a trace do not meet."""

_ROUNDING_STEPS = 1e-6
"""Slack when the step counter is rounded down to whole tokens; far above float error, far below a token."""


class LiveRequest:
    """A request that waits or runs. `generated` tokens are known; KV is computed for all tokens but the last."""

    __slots__ = (
        "blocks", "cached_tokens", "filled_blocks", "generated", "hashes", "joined_at_steps", "joined_with", "order",
        "output_tokens", "prompt_tokens", "reported", "request", "submitted_s", "told_first",
    )  # fmt: skip

    def __init__(self, request: SimRequest, block_tokens: int, now: float) -> None:
        self.request = request
        self.submitted_s = now
        self.prompt_tokens = len(request.token_ids)
        self.output_tokens = len(request.output_token_ids)
        self.hashes = _hashes_of(request, block_tokens)
        self.blocks: list[int] = []
        self.filled_blocks = 0
        self.cached_tokens = -1
        self.generated = 0
        self.reported = 0
        self.told_first = False
        self.joined_at_steps = 0.0
        self.joined_with = 0
        self.order = -1

    @property
    def known_tokens(self) -> int:
        return self.prompt_tokens + self.generated

    @property
    def slots_tokens(self) -> int:
        """Tokens whose KV is held at the very end: the last one is never computed."""
        return self.prompt_tokens + max(0, self.output_tokens - 1)

    def generated_by(self, steps: float) -> int:
        """Return tokens generated when the step counter is at `steps`. The end has an event of its own: it is later."""
        more = int(steps - self.joined_at_steps + _ROUNDING_STEPS)
        return max(self.generated, min(self.joined_with + more, self.output_tokens - 1))

    def next_event_at(self, stream_interval: int, block_tokens: int) -> int:
        """Return the number of the next token that is told, is the first of a new block, or the last."""
        opens_block = len(self.blocks) * block_tokens - self.prompt_tokens + 1
        return min(self.reported + stream_interval, opens_block, self.output_tokens)


def _hashes_of(request: SimRequest, block_tokens: int) -> Sequence[int]:
    given = request.block_hashes
    if given is None:
        ids = pack_ids(request.token_ids) + pack_ids(request.output_token_ids)
        return chain_hashes(ids, block_tokens, request.salt)
    shift = request.salt * _SALT_STEP
    return [(known + shift) & _MASK_64 for known in given] if shift else given
