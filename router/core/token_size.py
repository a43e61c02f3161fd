"""What is learnt of a model's tokens: how long they are, and how much of an answer is found again."""

from __future__ import annotations

KEEP_RATIO = 0.95
"""Weight that the past keeps at each new sample: about the last 20 prompts speak."""

PRIOR_ANSWER_TOKENS = 200.0
"""Length of an answer before any was seen: about a chat's median."""

LENGTH_RATIO = 0.02
"""Weight of each new answer in the usual length: about the last 50 speak."""

PRIOR_TOKENS = 2_000
"""Prompt tokens that the starting bytes-per-token is worth."""


class TokenSize:
    """Canonical bytes per prompt token, how long answers are and how much of them the next turn finds, per model."""

    __slots__ = ("_bytes", "_tokens", "answer_reuse_ratio", "answer_tokens", "bytes_per_token")

    def __init__(self) -> None:
        self._bytes = 4.0 * PRIOR_TOKENS
        self._tokens = float(PRIOR_TOKENS)
        self.bytes_per_token = 4.0
        """The present estimate, between 0.25 and 64."""
        self.answer_tokens = PRIOR_ANSWER_TOKENS
        """Tokens of an answer, on average of late."""
        self.answer_reuse_ratio = 1.0
        """Share of a generated answer whose blocks the next turn hits: 1 where the client sends it back as generated
        and the template renders it so, 0 where reasoning is cut out or the text tokenises otherwise."""

    def observe(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """Learn from one prompt whose token count the engine reported."""
        if prompt_tokens > 0:
            self._bytes = self._bytes * KEEP_RATIO + prompt_bytes
            self._tokens = self._tokens * KEEP_RATIO + prompt_tokens
            self._estimate()

    @property
    def learnt(self) -> tuple[float, float, float, float]:
        """What was learnt, as `resume` takes it: decayed bytes, decayed tokens, reuse and length of answers."""
        return self._bytes, self._tokens, self.answer_reuse_ratio, self.answer_tokens

    def resume(
        self, prompt_bytes: float, prompt_tokens: float, answer_reuse_ratio: float, answer_tokens: float
    ) -> None:
        """Go on from another's `learnt`."""
        self._bytes, self._tokens, self.answer_reuse_ratio = prompt_bytes, prompt_tokens, answer_reuse_ratio
        self.answer_tokens = answer_tokens
        self._estimate()

    def _estimate(self) -> None:
        self.bytes_per_token = min(64.0, max(0.25, self._bytes / self._tokens))

    def observe_length(self, tokens: int) -> None:
        """Learn from one answer's length."""
        self.answer_tokens += LENGTH_RATIO * (tokens - self.answer_tokens)

    def observe_answer(self, reused_ratio: float) -> None:
        """Learn from one follow-up turn: the share (0 to 1) of the answer before it that was a hit."""
        self.answer_reuse_ratio += 0.2 * (min(1.0, max(0.0, reused_ratio)) - self.answer_reuse_ratio)
