"""How many streams a replica decodes at once, over time: what a stream's speed is explained by."""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    """A moment, and what had summed up by then."""

    at_s: float
    stream_s: float
    context_token_s: float


class Batch:
    """Integrals over time of the decoding streams and of their context."""

    __slots__ = ("_at_s", "_context_token_s", "_context_tokens", "_stream_s", "_streams")

    def __init__(self) -> None:
        self._streams = self._context_tokens = 0.0
        self._stream_s = self._context_token_s = 0.0
        self._at_s = 0.0

    def changed(self, streams: float, context_tokens: float, now: float) -> None:
        """Note that from now on so many streams with so many tokens in all are decoded."""
        passed_s = now - self._at_s
        if passed_s > 0.0:
            self._stream_s += self._streams * passed_s
            self._context_token_s += self._context_tokens * passed_s
            self._at_s = now
        self._streams, self._context_tokens = streams, context_tokens

    def mark(self, now: float) -> Mark:
        """Return the sums up to now."""
        passed_s = max(0.0, now - self._at_s)
        stream_s = self._stream_s + self._streams * passed_s
        return Mark(self._at_s + passed_s, stream_s, self._context_token_s + self._context_tokens * passed_s)

    def means_since(self, mark: Mark, now: float) -> tuple[float, float]:
        """Return the mean streams and the mean tokens of their context since a mark that is earlier."""
        end = self.mark(now)
        passed_s = end.at_s - mark.at_s
        if passed_s <= 0:
            return self._streams, self._context_tokens
        return (end.stream_s - mark.stream_s) / passed_s, (end.context_token_s - mark.context_token_s) / passed_s
