"""Where a prompt's blocks end in tokens, and the numbers under which other tools know pieces of it."""

from __future__ import annotations

from bisect import bisect_left

from router.core.bounded import BoundedMap
from router.core.prompt import open_hash
from router.core.types import Prompt

PIECE_TOKENS = 512
"""Of one of `hash_ids`: Mooncake's traces have it, and tools that read them take it for granted."""

MOST_BLOCKS = 250_000
"""Prompt blocks whose ends are remembered, some 30 million tokens in 45 MB. An end that was forgotten is estimated
anew, and may differ by a few tokens from what was written before."""

MOST_PIECES = 100_000
"""Pieces whose numbers are remembered, some 50 million tokens in 18 MB. One that was forgotten gets another number."""

_PLACE = 0x9E3779B97F4A7C15
"""Odd, with its bits spread: so that pieces which one block covers have keys of their own."""

_MASK = (1 << 64) - 1


class Ends:
    """Ends of prompt blocks in tokens, each the same in every prompt that has the block."""

    def __init__(self, most: int = MOST_BLOCKS) -> None:
        self._known: BoundedMap[int] = BoundedMap(most)

    def of(self, prompt: Prompt, tokens: int) -> list[int]:
        """Return the ends of a prompt of so many tokens.

        Blocks that an earlier prompt had keep their ends, the others share what is left, in proportion to their bytes.
        So a turn's own end, of which the engine tells, is where its next turn finds it.
        """
        ends = self._known_of(prompt.hashes)
        start_bytes = prompt.ends_bytes[len(ends) - 1] if ends else 0
        start = ends[-1] if ends else 0
        ratio = max(0, tokens - start) / max(1, prompt.total_bytes - start_bytes)
        known = len(ends)
        ends += [start + round((end_bytes - start_bytes) * ratio) for end_bytes in prompt.ends_bytes[known:]]
        put = self._known.put
        for block_hash, end in zip(prompt.hashes[known:], ends[known:], strict=True):
            put(block_hash, end)
        return [min(end, tokens) for end in ends] if start > tokens else ends

    def _known_of(self, hashes: list[int]) -> list[int]:
        """Return the ends of the leading blocks that are known."""
        """Return the ends of the leading blocks that are known, up to one that does not fit those before it.

        That is where one before it was forgotten and estimated anew.
        """
        ends: list[int] = []
        get, last = self._known.get, 0
        for block_hash in hashes:
            end = get(block_hash)
            if end is None or end < last:
                break
            ends.append(end)
            last = end
        return ends


class Pieces:
    """Small numbers for pieces of `PIECE_TOKENS` tokens: equal for equal beginnings, up to the piece's end."""

    def __init__(self, most: int = MOST_PIECES) -> None:
        self._numbers: BoundedMap[int] = BoundedMap(most)
        self._next = 0

    def of(self, prompt: Prompt | None, ends: list[int], tokens: int) -> list[int]:
        """Return the numbers of a prompt's pieces, the last partial one included. Without a prompt all are new."""
        count = -(-tokens // PIECE_TOKENS)
        if prompt is None:
            return [self._new() for _ in range(count)]
        return [self._number(self._key(prompt, ends, place, tokens)) for place in range(count)]

    @staticmethod
    def _key(prompt: Prompt, ends: list[int], place: int, tokens: int) -> int:
        covering = bisect_left(ends, min((place + 1) * PIECE_TOKENS, tokens))
        if covering < len(ends):
            key = prompt.hashes[covering]
        elif prompt.open_text is None:
            key = prompt.hashes[-1]
        else:
            key = open_hash(prompt.hashes[-1], prompt.open_text[prompt.ends_bytes[-1] :])
        return (key + place * _PLACE) & _MASK

    def _number(self, key: int) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._new()
            self._numbers.put(key, number)
        return number

    def _new(self) -> int:
        self._next += 1
        return self._next - 1
