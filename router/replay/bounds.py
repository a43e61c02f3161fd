"""What no placement can beat by much: hits of a cache that never evicts, and of one cache as large as all together."""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.prefixes import PrefixCache


class Bounds:
    """Both hit rates over the counted requests, told in order of their arrival.

    Each request is taken to be answered before the next one comes. As an engine does, only whole blocks hit, and the
    last token of a prompt is always computed.
    """

    def __init__(self, pooled_tokens: int, block_tokens: int) -> None:
        """`pooled_tokens`: the size of all replicas' caches together."""
        self._block_tokens = block_tokens
        self._endless = PrefixCache()
        self._pooled = PrefixCache(pooled_tokens // block_tokens)
        self._prompt_tokens = self._endless_tokens = self._pooled_tokens = 0

    def take(self, hashes: Sequence[int], prompt_tokens: int, counted: bool) -> None:
        """Take in a request: `hashes` of the blocks of its prompt and its answer."""
        if counted:
            reusable = hashes[: (prompt_tokens - 1) // self._block_tokens]
            self._prompt_tokens += prompt_tokens
            self._endless_tokens += self._endless.match(reusable) * self._block_tokens
            self._pooled_tokens += self._pooled.match(reusable) * self._block_tokens
        self._endless.use(hashes)
        self._pooled.use(hashes)

    @property
    def ceiling_ratio(self) -> float:
        """Hit tokens over prompt tokens, 0 to 1, of a cache that never evicts."""
        return self._endless_tokens / max(1, self._prompt_tokens)

    @property
    def pooled_ratio(self) -> float:
        """The same of one LRU cache of `pooled_tokens`."""
        return self._pooled_tokens / max(1, self._prompt_tokens)
