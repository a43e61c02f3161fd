"""The values that cross the core's border: requests in, decisions out, facts about engines and outcomes in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from router.core.token_ids import TokenIds

ReplicaId = str
"""Opaque id of a replica, stable per address as long as the key of its hash is; never an address."""


class Reason(StrEnum):
    """Why a replica was chosen, in one word: a header, a metric label and a log field."""

    NEW = "new"
    """No history of this session is known, and the chosen replica holds nothing of its prompt."""
    SHARED = "shared"
    """No history of this session is known, but the chosen replica holds a prefix that others share."""
    WARM = "warm"
    """The replica that holds most of this session's history."""
    SESSION = "session"
    """The home named by an explicit session hint, against or without a match of its prefix."""
    PINNED = "pinned"
    """The one replica that stores the object the request names, such as a response id."""
    SPILLED = "spilled"
    """Away from a home that is up: waiting there would cost more than computing again."""
    FAILOVER = "failover"
    """Away from a home that is not available, or a retry after another replica failed."""
    DRAINED = "drained"
    """Away from a home that is being drained."""
    LAST_RESORT = "last-resort"
    """No replica is fit for requests: one of them is tried all the same."""
    KEYLESS = "keyless"
    """The prompt is shorter than one block: placed by load."""
    UNKNOWN_SHAPE = "unknown-shape"
    """A body the router does not read (multipart, an unknown path): placed by load."""
    POLICY = "policy"
    """A policy that does not look at residency placed it away from its history."""


class OutcomeKind(StrEnum):
    """How one attempt ended, as far as the replica's books are concerned."""

    COMPLETED = "completed"
    """The replica's whole answer arrived, whatever its status below 500 except 429."""
    BUSY = "busy"
    """429 or 503: back-pressure, evidence of load and not of failure."""
    ERRORED = "errored"
    """Another 5xx answer."""
    CLIENT_LEFT = "client-left"
    """The client closed its connection first."""
    REFUSED = "refused"
    """No connection could be made."""
    RESET = "reset"
    """The connection was lost, or the engine reported its own death, before the first byte of the answer's body."""
    DIED = "died"
    """The connection was lost, or fell silent for too long, in the middle of the answer."""
    SILENT = "silent"
    """Nothing came while other replicas answered; the replica was judged before its requests were given up."""


FAILURES = frozenset({OutcomeKind.REFUSED, OutcomeKind.RESET, OutcomeKind.DIED})
"""Outcomes that eject a replica."""


Part = tuple[int, bytes, bytes | memoryview, int]
"""A piece of a prompt as it was read: index in the request's messages, or -1 for what precedes them; tag; canonical
bytes; number of blocks before it."""


class Prompt(NamedTuple):
    """A prompt's identity: hashes of its leading blocks, each chained on the one before."""

    hashes: list[int]
    """64-bit chained block hashes, first block first; at least one."""
    ends_bytes: list[int]
    """Canonical bytes from the start of the prompt to the end of block i; same length as `hashes`."""
    answers_at: list[int]
    """Block indexes at which a message of the assistant begins, ascending."""
    bytes_per_token: float | None
    """Exact where the prompt came as token ids; None: learnt per model."""
    open_text: bytes | memoryview | None = None
    """The whole of a text, or of ids, to be completed: a longer one goes on inside its last block, so only whole blocks
    are keys. None for messages, whose end closes a block."""
    opening_blocks: int = 0
    """Blocks before the first message that is not the operator's: tools, system prompt. What sessions share."""
    from_tool: bool = False
    """The last message is what a tool returned."""
    parts: list[Part] | None = None
    """What it was made of. They hold the text: to be cleared once they are hashed, before the request waits for
    anything. None where nobody collected them."""

    @property
    def open_bytes(self) -> int | None:
        """What follows the last whole block and is in no key; None for messages."""
        return None if self.open_text is None else len(self.open_text) - self.ends_bytes[-1]

    @property
    def total_bytes(self) -> int:
        """Canonical bytes of the whole prompt."""
        return self.ends_bytes[-1] + (self.open_bytes or 0)


class RoutingRequest(NamedTuple):
    """All that routing wants to know of a request."""

    model: str
    shape: str
    """Which extraction read the body: chat, completions, responses, messages, embeddings or unknown."""
    prompt: Prompt | None
    """None for a prompt under one block and for unknown shapes."""
    body_bytes: int
    streaming: bool = False
    session: int | None = None
    """Keyed 64-bit hash of a session hint, in the request's scope."""
    session_is_explicit: bool = False
    """True for a header or `session_id`: it wins over the computed prefix. Other hints only fill in for it."""
    stored: int | None = None
    """Hash of the id of a stored object (a response) which the request names: only its replica can serve it."""
    batch: bool = False
    """Nobody waits for the answer: others go first."""
    tokens: TokenIds | None = None
    """The prompt as the engine's tokens, where a tokenizer was given and was in time."""


class Score(msgspec.Struct, frozen=True, gc=False):
    """The price of one replica for one request; the lowest total wins. Seconds."""

    replica: ReplicaId
    total_s: float
    queue_s: float
    """Seconds until the replica has prefilled what was sent to it before."""
    own_s: float
    """Seconds to prefill the request's own uncached tokens there."""
    balance_s: float
    """What placing it there costs others: those that come while it is computed, and a new session's part in the
    replica's recent work."""
    matched_blocks: int
    matched_tokens: int
    """Prompt tokens the replica is believed to hold, rounded down to the engine's blocks."""
    evicted_s: float = 0.0
    """What the blocks that make room for it are worth: the seconds to compute them again, by the chance that they would
    have been used."""
    streams_s: float = 0.0
    """What its answer takes of the replica's decode steps: its own tokens' time, and what it adds to others'."""


@dataclass(slots=True)
class Decision:
    """The chosen replica and why."""

    replica: ReplicaId
    reason: Reason
    scores: list[Score]
    """One per replica considered, in fleet order."""
    prompt_tokens: int
    """Estimated length of the prompt."""
    matched_tokens: int
    """Tokens the chosen replica is believed to hold (its residency, not its session hint)."""
    home: ReplicaId | None
    """Where this session's history is believed to be; None for a new one."""
    reloaded_tokens: int = 0
    """Of `matched_tokens`, those that the engine has in a slower cache than the GPU's."""

    @property
    def alternates(self) -> list[ReplicaId]:
        """The other replicas considered, best first."""
        ranked = sorted(self.scores, key=lambda score: score.total_s)
        return [score.replica for score in ranked if score.replica != self.replica]


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What an engine said about its own answer. None: it did not say."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """How an attempt ended."""

    kind: OutcomeKind
    status: int | None = None
    """HTTP status of the engine's answer; None without one."""
    usage: Usage = msgspec.field(default_factory=Usage)
    retry_after_s: float | None = None


class EngineReport(msgspec.Struct, frozen=True, gc=False):
    """One reading of an engine's /metrics. None always means unknown, never zero."""

    running: int | None = None
    waiting: int | None = None
    kv_usage_ratio: float | None = None
    """Blocks held by live requests / all blocks, 0 to 1: load, not how much of the cache is full."""
    kv_tokens: int | None = None
    """Capacity of the KV cache in tokens."""
    block_tokens: int | None = None
    prefix_queries_tokens: float | None = None
    prefix_hits_tokens: float | None = None
    preemptions: float | None = None
    start_time_s: float | None = None
    """Unix time at which the engine's process started."""
    asleep: bool | None = None
    external_queries_tokens: float | None = None
    """Looked for in offload tiers or at other engines: what the engine's own cache did not have."""
    external_hits_tokens: float | None = None

    def completed_by(self, before: EngineReport) -> EngineReport:
        """Return this reading with what it leaves out taken from the one before, where that does not pass with time.

        Gauges stay unknown. A page without the start time must not hide the restart that the next page would show.
        """
        missing = {name: getattr(before, name) for name in _LASTING if getattr(self, name) is None}
        return msgspec.structs.replace(self, **missing) if missing else self


    def restarted_since(self, before: EngineReport) -> bool:
        """Tell whether this reading is of another process than the one before."""
        started_s, starts_s = before.start_time_s, self.start_time_s
        if started_s is not None and starts_s is not None and abs(starts_s - started_s) > 1.0:
            return True
        if before.prefix_queries_tokens is None or self.prefix_queries_tokens is None:
            return False
        return self.prefix_queries_tokens < before.prefix_queries_tokens


_LASTING = (
    "kv_tokens",
    "block_tokens",
    "prefix_queries_tokens",
    "prefix_hits_tokens",
    "external_queries_tokens",
    "external_hits_tokens",
    "preemptions",
    "start_time_s",
)


class NoReplicaError(Exception):
    """The fleet is empty, or every replica was excluded."""


class UnknownModelError(Exception):
    """Every replica has said what it serves, and none serves the model that is asked for."""
