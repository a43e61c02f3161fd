"""From matched blocks to cached tokens: anchored at turn ends whose token counts an engine has reported."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from router.core.bounded import BoundedMap
from router.core.prompt import open_hash
from router.core.token_ids import TokenIds
from router.core.token_size import TokenSize
from router.core.types import Prompt

ESTIMATED_RATIO = 0.25
"""Share of an estimated count by which an engine's own may differ: bytes per token differ that much between the
beginning of a prompt and the whole."""

_ANSWER_BITS = 24
_ANSWER_MASK = (1 << _ANSWER_BITS) - 1
_OPEN_BITS = 0x2545F491_4F6CDD1D
"""Key of the length of what follows a text's last whole block: that block's hash with these bits turned over."""


class Anchor(NamedTuple):
    """The last known turn end within a prompt."""

    blocks: int
    """Whole blocks up to it; 0: there is none."""
    end_bytes: int
    prompt_tokens: int
    answer_tokens: int


_NO_ANCHOR = Anchor(0, 0, 0, 0)


def turn_links(prompt: Prompt, prompt_tokens: int, answer_tokens: int) -> list[tuple[int, int]]:
    """Return what is remembered of a turn's end, hash by hash: its token counts, and how far a text went on."""
    packed = prompt_tokens << _ANSWER_BITS | min(answer_tokens, _ANSWER_MASK)
    leaf = prompt.hashes[-1]
    if prompt.open_text is None:
        return [(leaf, packed)]
    rest = prompt.open_text[prompt.ends_bytes[-1] :]
    return [(leaf ^ _OPEN_BITS, len(rest)), (open_hash(leaf, rest), packed)]


class TurnEnds:
    """Ends of answered prompts: their last block's hash -> tokens of prompt and answer. Where a session can go on."""

    __slots__ = ("_ends", "limit")

    def __init__(self, limit: int) -> None:
        self._ends: BoundedMap[int] = BoundedMap(limit)
        self.limit = limit

    def __len__(self) -> int:
        return len(self._ends)

    def put(self, prompt: Prompt, prompt_tokens: int, answer_tokens: int) -> None:
        """Remember that a prompt has been answered."""
        self.put_links(turn_links(prompt, prompt_tokens, answer_tokens))

    def put_links(self, links: Iterable[tuple[int, int]]) -> None:
        """Remember a turn's end by its links (see `turn_links`)."""
        for key, value in links:
            self._ends.put(key, value)

    def halves(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return all links (see `BoundedMap.halves`), as `put_links` takes them."""
        return self._ends.halves()

    def knows(self, block: int) -> bool:
        """Tell whether a prompt of messages that ends in this block has been answered."""
        return block in self._ends

    def last_known(self, blocks: list[int]) -> int:
        """Return the position, counted from 1, of the last block that ends a prompt which was answered; 0: none."""
        return self._ends.last_known(blocks, len(blocks))

    def deepest(self, prompt: Prompt, matched: int) -> Anchor:
        """Return the last turn end within the `matched` leading blocks, and what of a text follows them."""
        hashes, ends = prompt.hashes, prompt.ends_bytes
        if prompt.open_text is not None:
            return self._deepest_open(prompt, prompt.open_text, matched)
        blocks = self._ends.last_known(hashes, matched)
        return self._anchor(hashes[blocks - 1], blocks, ends[blocks - 1]) if blocks else _NO_ANCHOR

    def _deepest_open(self, prompt: Prompt, text: bytes | memoryview, matched: int) -> Anchor:
        """Find the end of a text where the same bytes follow its last whole block.

        Short questions behind one long example share all whole blocks, and none of them goes on where another ended.
        """
        blocks = self._ends.last_known([block ^ _OPEN_BITS for block in prompt.hashes[:matched]], matched)
        if not blocks:
            return _NO_ANCHOR
        leaf, start = prompt.hashes[blocks - 1], prompt.ends_bytes[blocks - 1]
        end = start + (self._ends.get(leaf ^ _OPEN_BITS) or 0)
        return self._anchor(open_hash(leaf, text[start:end]), blocks, end)

    def _anchor(self, key: int, blocks: int, end_bytes: int) -> Anchor:
        packed = self._ends.get(key)
        if packed is None:
            return _NO_ANCHOR
        return Anchor(blocks, end_bytes, packed >> _ANSWER_BITS, packed & _ANSWER_MASK)


class TokenScale:
    """Token counts of one prompt's prefixes.

    Up to the anchor (its last known turn end) they are in proportion to the reported count. After it they follow the
    model's learnt bytes per token; where the prompt's own tokens are known, what those leave for the rest.
    """

    __slots__ = (
        "_answer_reuse_ratio",
        "_bytes_per_token",
        "_prompt",
        "anchor",
        "anchor_bytes",
        "anchor_tokens",
        "answer_tokens",
        "total",
    )

    def __init__(
        self, prompt: Prompt, size: TokenSize, turns: TurnEnds, matched: int, tokens: TokenIds | None = None
    ) -> None:
        """Anchor `prompt` at the deepest turn end within its `matched` leading blocks.

        `tokens`: the prompt's own, which make `total` exact.
        """
        self._prompt = prompt
        self._bytes_per_token = prompt.bytes_per_token or size.bytes_per_token
        self._answer_reuse_ratio = size.answer_reuse_ratio
        self.anchor, self.anchor_bytes, self.anchor_tokens, self.answer_tokens = turns.deepest(prompt, matched)
        if tokens is None:
            self.total = max(1, round(self._tokens_at(prompt.total_bytes)))
            return
        self.total = max(1, len(tokens))
        rest_bytes, rest_tokens = prompt.total_bytes - self.anchor_bytes, len(tokens) - self.anchor_tokens
        if rest_bytes > 0 and rest_tokens > 0:
            self._bytes_per_token = rest_bytes / rest_tokens

    def tokens(self, blocks: int) -> float:
        """Return the estimated tokens of the first `blocks` blocks."""
        return self._tokens_at(self._prompt.ends_bytes[blocks - 1]) if blocks else 0.0

    def _tokens_at(self, end_bytes: int) -> float:
        anchor_bytes = self.anchor_bytes
        if end_bytes < anchor_bytes:
            return self.anchor_tokens * end_bytes / anchor_bytes
        return self.anchor_tokens + (end_bytes - anchor_bytes) / self._bytes_per_token

    def estimated_tokens(self, blocks: int) -> float:
        """Return how many of the tokens of the first `blocks` blocks are estimated: those that no turn's end bounds."""
        return self.tokens(blocks) - (self.anchor_tokens if blocks >= self.anchor else 0)

    @property
    def answer_follows(self) -> bool:
        """Tell whether the prompt goes on behind the anchor with a message of the assistant, or with the same text."""
        if self._prompt.open_text is not None:
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
            tokens = self.anchor_tokens + self.answer_tokens * self._answer_reuse_ratio
        return int(min(tokens, self.total - 1)) // block_tokens * block_tokens
