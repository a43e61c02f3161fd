"""What goes into a simulated engine and what comes out: sizes and speeds, requests, events, counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class DoesNotFit(ValueError):
    """A prompt and its output together are longer than the whole cache, or the prompt is empty (vLLM: 400)."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Size and speed of one engine. Defaults: the replica that the policies were compared on."""

    kv_tokens: int = 300_000
    block_tokens: int = 16
    prefill_tokens_per_s: float = 8_000.0
    prefill_slowdown_per_seq: float = 0.015
    """Prefill speed is divided by 1 + this * decoding sequences."""
    decode_s: float = 0.020
    decode_per_seq_s: float = 0.0003
    max_num_seqs: int = 256
    stream_interval: int = 1
    """Tokens per Tokens event. The first token and the end are always told at once."""
    prefix_caching: bool = True
    """False: --no-enable-prefix-caching; then nothing is looked up, and both counters stay at 0."""
    max_num_queued_reqs: int | None = None
    """Waiting requests above this are refused; None: never."""

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool, the reserved one included."""
        return self.kv_tokens // self.block_tokens

    @property
    def capacity_tokens(self) -> int:
        """The longest prompt plus output that fits an empty cache."""
        return (self.num_blocks - 1) * self.block_tokens


@dataclass(frozen=True, slots=True)
class Named:
    """What cache events say of the request that they come from, beside its tokens."""

    session: str | None = None
    adapter: str | None = None
    cache_salt: str | None = None


@dataclass(slots=True)
class SimRequest:
    """One request, with the output that the engine will produce for it."""

    request_id: str
    token_ids: Sequence[int]
    """The whole prompt."""
    output_token_ids: Sequence[int]
    """What will be generated; its full blocks are cached too."""
    salt: int = 0
    """Scope (model, adapter, cache_salt): another salt, another prefix."""
    finish_reason: str = "length"
    block_hashes: Sequence[int] | None = None
    """Identities of the leading full blocks where a trace gives them; of the ids only the number counts then."""
    named: Named | None = None

    @classmethod
    def from_block_hashes(
        cls, request_id: str, block_hashes: Sequence[int], prompt_tokens: int, output_tokens: int, salt: int = 0
    ) -> SimRequest:
        """Return a request known by block identities alone.

        Identities beyond the prompt name blocks that the output fills; blocks without one are never hit.
        """
        return cls(request_id, range(prompt_tokens), range(output_tokens), salt, block_hashes=block_hashes)


@dataclass(frozen=True, slots=True)
class Tokens:
    """`count` more tokens came out; `first` marks the end of prefill."""

    request_id: str
    at_s: float
    first: bool
    count: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The request ended by itself and its blocks are free."""

    request_id: str
    at_s: float
    reason: str
    cached_tokens: int
    prompt_tokens: int
    generated_tokens: int


Event = Tokens | Finished


@dataclass(slots=True)
class EngineStats:
    """Counters since the start. As in vLLM, a preempted request counts in the prefix counters once."""

    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    external_hits_tokens: int = 0
    """Loaded from a tier beside the GPU."""
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    rejected: int = 0
    aborted: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0})
    queue_s_sum: float = 0.0
    """Seconds from submit to the start of prefill, over `started` requests."""
    started: int = 0
    ttft_s_sum: float = 0.0
    """Seconds from submit to the first token, over `first_tokens` requests."""
    first_tokens: int = 0
    e2e_s_sum: float = 0.0
    """Seconds from submit to the end, over all `finished` requests."""

    def note_start(self, queries_tokens: int, cached_tokens: int, loaded_tokens: int, queue_s: float) -> None:
        """Count the start of a prefill; of the cached tokens, the loaded ones came from a tier."""
        self.prefix_queries_tokens += queries_tokens
        self.prefix_hits_tokens += cached_tokens - loaded_tokens
        self.external_hits_tokens += loaded_tokens
        self.queue_s_sum += queue_s
        self.started += 1

    def note_first(self, prompt_tokens: int, ttft_s: float) -> None:
        """Count a first token."""
        self.prompt_tokens += prompt_tokens
        self.first_tokens += 1
        self.ttft_s_sum += ttft_s

    def note_end(self, reason: str, e2e_s: float) -> None:
        """Count an answer that ended by itself."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
        self.e2e_s_sum += e2e_s
