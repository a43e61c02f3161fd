"""From matched blocks to cached tokens: anchored at turn ends whose token counts an engine has reported."""

from __future__ import annotations

from bisect import bisect_left

from router.core.bounded import BoundedMap
from router.core.latency import TokenSize
from router.core.types import Prompt

_ANSWER_BITS = 24
_ANSWER_MASK = (1 << _ANSWER_BITS) - 1


class TurnEnds:
    """Ends of answered prompts: their last block's hash -> tokens of prompt and answer. Where a session can go on."""

    __slots__ = ("_ends", "limit")

    def __init__(self, limit: int) -> None:
        self._ends: BoundedMap[int] = BoundedMap(limit)
        self.limit = limit

    def __len__(self) -> int:
        return len(self._ends)

    def put(self, leaf: int, prompt_tokens: int, answer_tokens: int) -> None:
        """Remember that the prompt ending in `leaf` has been answered."""
        self._ends.put(leaf, prompt_tokens << _ANSWER_BITS | min(answer_tokens, _ANSWER_MASK))

    def deepest(self, hashes: list[int], matched: int) -> tuple[int, int, int]:
        """Return (blocks, prompt tokens, answer tokens) of the last turn end within `matched`; zeros for none."""
        blocks = self._ends.last_known(hashes, matched)
        if not blocks:
            return 0, 0, 0
        packed = self._ends.get(hashes[blocks - 1]) or 0
        return blocks, packed >> _ANSWER_BITS, packed & _ANSWER_MASK


class TokenScale:
    """Token counts of one prompt's prefixes.

    Up to the anchor (its last known turn end) they are in proportion to the reported count, after it they follow the
    model's learnt bytes per token.
    """

    __slots__ = (
        "_answer_reuse_ratio",
        "_bytes_per_token",
        "_prompt",
        "anchor",
        "anchor_tokens",
        "answer_tokens",
        "total",
    )

    def __init__(self, prompt: Prompt, size: TokenSize, turns: TurnEnds, matched: int) -> None:
        """Anchor `prompt` at the deepest turn end within its `matched` leading blocks."""
        self._prompt = prompt
        self._bytes_per_token = prompt.bytes_per_token or size.bytes_per_token
        self._answer_reuse_ratio = size.answer_reuse_ratio
        self.anchor, self.anchor_tokens, self.answer_tokens = turns.deepest(prompt.hashes, matched)
        self.total = max(1, round(self.tokens(len(prompt.hashes)) + (prompt.open_bytes or 0) / self._bytes_per_token))

    @property
    def anchor_bytes(self) -> int:
        """Canonical bytes up to the anchor."""
        return self._prompt.ends_bytes[self.anchor - 1] if self.anchor else 0

    def tokens(self, blocks: int) -> float:
        """Return the estimated tokens of the first `blocks` blocks."""
        if blocks == 0:
            return 0.0
        end, anchor_bytes = self._prompt.ends_bytes[blocks - 1], self.anchor_bytes
        if blocks < self.anchor:
            return self.anchor_tokens * end / anchor_bytes
        return self.anchor_tokens + (end - anchor_bytes) / self._bytes_per_token

    @property
    def answer_follows(self) -> bool:
        """Tell whether the prompt goes on behind the anchor with a message of the assistant, or with the same text."""
        if self._prompt.open_bytes is not None:
            return True
        answers_at = self._prompt.answers_at
        index = bisect_left(answers_at, self.anchor)
        return index < len(answers_at) and answers_at[index] == self.anchor

    def cached_tokens(self, blocks: int, block_tokens: int, answer_resident: bool) -> int:
        """Return the tokens an engine with `block_tokens` per block will report as cached for a match of `blocks`.

        Whole blocks only, and never the last token of the prompt: the engine recomputes it to have something to sample.
        """
        tokens = self.tokens(blocks)
        if answer_resident and blocks == self.anchor and self.answer_follows:
            tokens += self.answer_tokens * self._answer_reuse_ratio
        return int(min(tokens, self.total - 1)) // block_tokens * block_tokens
