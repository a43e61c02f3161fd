"""What is learnt of engines' speed and of prompts' token counts."""

from __future__ import annotations

MIN_SAMPLE_TOKENS = 256
"""Prefills shorter than this say more about fixed costs (a step, the network) than about the rate."""

KEEP_RATIO = 0.95
"""Weight that the past keeps at each new sample: about the last 20 prefills speak."""

LEAST_KEEP_RATIO = 0.98
"""Share of the fastest answer in one piece that is believed at each new one: about the last 50 speak."""

MIN_SAMPLES = 4
"""Prefills to be timed before a replica's own speed is believed: one may have waited for a hiccup."""

PRIOR_TOKENS = 2_000
"""Prompt tokens that the starting bytes-per-token is worth."""


class PrefillRate:
    """Uncached prompt tokens a replica prefills per second: decayed tokens / decayed seconds."""

    __slots__ = ("_samples", "_seconds", "_tokens", "least_tokens_per_s", "tokens_per_s")

    def __init__(self, assumed_tokens_per_s: float) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._samples = 0
        self.tokens_per_s = assumed_tokens_per_s
        """The present estimate, always above zero."""
        self.least_tokens_per_s = 0.0
        """What it has reached of late at the least. Too rough to compare replicas by."""

    @property
    def measured(self) -> bool:
        """Tell whether enough prefills were timed; until then the estimate is an assumption."""
        return self._samples >= MIN_SAMPLES

    def assume(self, tokens_per_s: float) -> None:
        """Believe in another's speed until this one's is measured."""
        if not self.measured:
            self.tokens_per_s = tokens_per_s

    def observe(self, uncached_tokens: int, elapsed_s: float) -> None:
        """Learn from one prefill, timed from its dispatch or its predecessor's first byte, the later."""
        if uncached_tokens < MIN_SAMPLE_TOKENS or elapsed_s <= 0:
            return
        self._tokens = self._tokens * KEEP_RATIO + uncached_tokens
        self._seconds = self._seconds * KEEP_RATIO + elapsed_s
        self._samples += 1
        if self._samples >= MIN_SAMPLES:
            self.tokens_per_s = self._tokens / self._seconds

    def at_least(self, uncached_tokens: int, elapsed_s: float) -> None:
        """Learn from an answer in one piece, whose time has its generation in it: only that it is not slower.

        Without that an engine that streams to nobody, embeddings for one, would be taken for as slow as assumed.
        """
        if elapsed_s > 0:
            self.least_tokens_per_s = max(uncached_tokens / elapsed_s, self.least_tokens_per_s * LEAST_KEEP_RATIO)

    @property
    def samples(self) -> tuple[float, float, int]:
        """What was learnt, as `resume` takes it: decayed tokens, decayed seconds, prefills timed."""
        return self._tokens, self._seconds, self._samples

    def resume(self, tokens: float, seconds: float, samples: int) -> None:
        """Go on from another's `samples`."""
        self._tokens, self._seconds, self._samples = tokens, seconds, samples
        if self.measured and seconds > 0:
            self.tokens_per_s = tokens / seconds


class TokenSize:
    """Canonical bytes per prompt token and how much of an answer is found again in the next turn, per model."""

    __slots__ = ("_bytes", "_tokens", "answer_reuse_ratio", "bytes_per_token")

    def __init__(self) -> None:
        self._bytes = 4.0 * PRIOR_TOKENS
        self._tokens = float(PRIOR_TOKENS)
        self.bytes_per_token = 4.0
        """The present estimate, between 0.25 and 64."""
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
    def learnt(self) -> tuple[float, float, float]:
        """What was learnt, as `resume` takes it: decayed bytes, decayed tokens, reuse of answers."""
        return self._bytes, self._tokens, self.answer_reuse_ratio

    def resume(self, prompt_bytes: float, prompt_tokens: float, answer_reuse_ratio: float) -> None:
        """Go on from another's `learnt`."""
        self._bytes, self._tokens, self.answer_reuse_ratio = prompt_bytes, prompt_tokens, answer_reuse_ratio
        self._estimate()

    def _estimate(self) -> None:
        self.bytes_per_token = min(64.0, max(0.25, self._bytes / self._tokens))

    def observe_answer(self, reused_ratio: float) -> None:
        """Learn from one follow-up turn: the share (0 to 1) of the answer before it that was a hit."""
        self.answer_reuse_ratio += 0.2 * (min(1.0, max(0.0, reused_ratio)) - self.answer_reuse_ratio)
