"""One replica as the router knows it: its mirror, ledger, learnt rate, health and last engine report."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from router.core.batch import Batch
from router.core.costs import DecodeCost, PrefillCost
from router.core.curves import CLASSES
from router.core.engine_cache.cache import EngineCache
from router.core.health import Care, Health, State
from router.core.ledger import Ledger
from router.core.recent import Recent
from router.core.residency import FULL_RATIO, Mirror
from router.core.returns import Returns
from router.core.types import EngineReport, ReplicaId

KV_NEARLY_FULL_RATIO = 0.9
"""Above this share of blocks held by running requests vLLM begins to queue for memory and to preempt: with 4 running
and 2 waiting it stood at 0.99 and a preemption followed."""

KV_FULL_S = 2.0
"""Seconds a replica without a free block is charged: about one answer's wait until blocks are released."""

BUSY_S = 2.0
"""Seconds a replica that has just answered 429 or 503 is charged: it serves again when all others are as full."""

SUSPECT_S = 2.0
"""Seconds a suspect replica is charged: its own sessions go elsewhere once recomputing them there is cheaper."""

TAIL_KEEP_S = 0.5
"""How long `tail_chance` is not looked at anew: it changes by the seconds that blocks stay."""

DEFAULT_BLOCK_TOKENS = 16
"""vLLM's default block size, until the engine's own is read."""


class Load(NamedTuple):
    """What is under way on a replica."""

    uncached_tokens: int = 0
    """Prompt tokens sent there and not yet prefilled."""
    pending: int = 0
    """Requests whose prefill is not known to be over."""
    streams: int = 0
    """Requests in flight."""


IDLE = Load()


def nothing_held(own_s: float) -> float:
    """Return 0: no request waits for a replica."""
    return 0.0


class Replica:
    """The books of one replica."""

    __slots__ = (
        "_memory_wait_s",
        "_tail_chance",
        "_tail_until_s",
        "batch",
        "chosen_for",
        "contents",
        "decode",
        "foreign_tokens",
        "health",
        "heard_s",
        "held_s",
        "last_chosen",
        "ledger",
        "mirror",
        "models",
        "peer_load",
        "prefill",
        "recent",
        "replica_id",
        "returns",
        "report",
        "timed_s",
        "weight",
    )

    def __init__(
        self,
        replica_id: ReplicaId,
        prior_tokens_per_s: float,
        care: Care | None = None,
        returns: Returns | None = None,
    ) -> None:
        """`care`: how its health is judged, `returns`: which sessions come back; both as all of the fleet."""
        self.replica_id = replica_id
        self.mirror = Mirror()
        self.contents: EngineCache | None = None
        """What the engine itself says it holds; None while its events are not followed or not complete."""
        self.ledger = Ledger()
        self.prefill = PrefillCost(prior_tokens_per_s)
        self.decode = DecodeCost()
        self.batch = Batch()
        self.recent = Recent()
        self.health = Health(care)
        self.report = EngineReport()
        self.models: frozenset[str] = frozenset()
        """Names it serves; empty while unknown, which means: may serve any."""
        self.weight = 1.0
        """Its share of the work against others', until its speed is measured."""
        self.last_chosen = 0
        """Sequence number of the last request sent here: ties go to the least recently chosen."""
        self.chosen_for: dict[str, int] = {}
        """The same by model: two models on one fleet do not take turns with each other."""
        self.heard_s = float("-inf")
        """When the last byte of any answer came from it."""
        self.timed_s = float("-inf")
        """When an answer's times were last learnt from."""
        self.held_s: Callable[[float], float] = nothing_held
        """Prefill seconds that wait in this router for it and will go before the request that is being decided on, by
        that one's own."""
        self.foreign_tokens = 0.0
        """Prefill that others than the routers have queued there, estimated from the engine's waiting line."""
        self.peer_load = IDLE
        """What other routers have under way there, by their own account."""
        self.returns = returns or Returns()
        self._memory_wait_s = 0.0
        self._tail_chance = 0.0
        self._tail_until_s = float("-inf")

    @property
    def block_tokens(self) -> int:
        """Tokens per block of the engine's cache."""
        return self.report.block_tokens or DEFAULT_BLOCK_TOKENS

    @property
    def load(self) -> Load:
        """What this router has under way there."""
        return Load(self.ledger.uncached_tokens, len(self.ledger.pending), self.ledger.streams)

    @property
    def streams(self) -> int:
        """Requests in flight there, of all routers."""
        return self.ledger.streams + self.peer_load.streams

    def serves(self, model: str) -> bool:
        """Tell whether it serves `model`, or may; a request that names none is served by any."""
        return not self.models or not model or model in self.models

    def queue_s(self, now: float) -> float:
        """Predict how long a request sent now waits before its own prefill begins, in seconds."""
        ledger = self.ledger
        if ledger.pending:
            ledger.expire(now)
        others = self.peer_load.uncached_tokens + self.foreign_tokens
        return ledger.prefill_s + others / self.prefill.tokens_per_s + self._fixed_wait_s(now)

    def backlog_s(self, now: float) -> float:
        """Return what `queue_s` is at the speed that it has at the least: whether to hold requests goes by that."""
        wait_s, least = self.queue_s(now), self.prefill.least_tokens_per_s
        if not least:
            return wait_s
        tokens = self.ledger.uncached_tokens + self.peer_load.uncached_tokens + self.foreign_tokens
        return min(wait_s, tokens / least + self._fixed_wait_s(now))

    def _fixed_wait_s(self, now: float) -> float:
        """Return what it is charged for lack of memory, and for having pushed back."""
        return self._memory_wait_s + BUSY_S if now < self.health.busy_until_s else self._memory_wait_s

    def priced_queue_s(self, now: float, own_s: float = 0.0) -> float:
        """Return what its waiting line is taken for when replicas are compared, in seconds; `own_s`: of the request.

        More than `queue_s` where requests wait for it, while it is suspect, and in its slow start, when it has a share
        of its speed only.
        """
        health = self.health
        wait_s = self.queue_s(now) + self.held_s(own_s)
        if now < health.ramp_until_s:
            wait_s /= health.ramp_ratio(now)
        return wait_s + SUSPECT_S if health.state is State.SUSPECT else wait_s

    def observe(self, report: EngineReport, foreign_tokens: float) -> None:
        """Take in a reading of the engine's metrics."""
        self.report = report
        self.foreign_tokens = foreign_tokens
        excess = (report.kv_usage_ratio or 0.0) - KV_NEARLY_FULL_RATIO
        self._memory_wait_s = max(0.0, KV_FULL_S * excess / (1.0 - KV_NEARLY_FULL_RATIO))

    def size_cache(self, bytes_per_token: float) -> None:
        """Tell the mirror how many canonical bytes the engine's cache holds, once its size in tokens is known."""
        if self.report.kv_tokens is not None:
            self.mirror.capacity_bytes = self.report.kv_tokens * bytes_per_token

    def tail_chance(self, now: float) -> float:
        """Return how likely what is evicted next would have been used, had it stayed twice as long; 0 to 1.

        One more token here takes one from the end of the line of idle blocks, and all that pass there for as long as it
        stays leave so much earlier: the loss per token is age x hazard at that age, which the chance of a return within
        as long again stands for. 0 while nothing is evicted.
        """
        if now >= self._tail_until_s:
            self._tail_until_s = now + TAIL_KEEP_S
            oldest = self.mirror.oldest() if (self.mirror.fill_ratio or 0.0) >= FULL_RATIO else None
            self._tail_chance = 0.0
            if oldest is not None:
                age_s = max(0.0, now - oldest.stamp / 1000)
                self._tail_chance = self.returns.chance(CLASSES[oldest.kind], age_s, age_s)
        return self._tail_chance

    def pressure_ratio(self, now: float) -> float:
        """Return saturation, 0 idle to 1 full: the fuller of waiting line (1 s is half) and KV cache."""
        queue_s = self.queue_s(now)
        return max(queue_s / (queue_s + 1.0), self.report.kv_usage_ratio or 0.0)

    def count_batch(self, now: float) -> None:
        """Note who is decoded from now on."""
        ledger = self.ledger
        decoding = ledger.streams - len(ledger.pending)
        context = ledger.context_tokens * decoding / ledger.streams if ledger.streams else 0.0
        self.batch.changed(decoding, context, now)
