"""The fleet: route a request, count it in; settle it, count it out. Plain function calls that never wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from router.core.bounded import LINK_BYTES, BoundedMap
from router.core.choice import Known, choose, matches
from router.core.latency import TokenSize
from router.core.learning import learn_from_answer
from router.core.ledger import Entry
from router.core.policy import Policy, affinity
from router.core.replica import Replica
from router.core.residency import ENTRY_BYTES, Lease
from router.core.ticket import Ticket
from router.core.tokens import TokenScale, TurnEnds
from router.core.types import (
    FAILURES,
    Decision,
    EngineReport,
    NoReplicaError,
    Outcome,
    OutcomeKind,
    Prompt,
    ReplicaId,
    RoutingRequest,
)

LINKS_SHARE = 0.2
"""Share of the index budget for turn ends and for session homes together; blocks have the rest."""

EVICTION_BATCH = 64
"""Idle blocks forgotten at a time when the index is full: a scan for the stalest replica per batch, not per block."""

FOREIGN_TOKENS = 500
"""Uncached tokens that a waiting request of somebody else's is taken for: a chat's turn with a pasted page."""

MAX_MODELS = 256
"""Models with token counts of their own. Names come from clients, so there is a limit; the rest share one account."""

_CUT_SHORT = frozenset({OutcomeKind.CLIENT_LEFT, OutcomeKind.DIED})
"""Ends that leave a session's history computed, if the answer had begun."""


class Fleet:
    """All replicas, what is believed of them, and the running account of requests. Single-threaded."""

    def __init__(
        self, policy: Policy = affinity, index_bytes: int = 256 << 20, prior_tokens_per_s: float = 8_000.0
    ) -> None:
        """Start empty. `index_bytes` bounds the memory of everything remembered about prompts and sessions."""
        self._replicas: dict[ReplicaId, Replica] = {}
        self._policy = policy
        self._prior_tokens_per_s = prior_tokens_per_s
        self._sequence = 0
        link_limit = max(1, int(index_bytes * LINKS_SHARE / 2 / LINK_BYTES))
        self._max_blocks = (index_bytes - 2 * link_limit * LINK_BYTES) // ENTRY_BYTES
        self.turns = TurnEnds(link_limit)
        self.homes: BoundedMap[ReplicaId] = BoundedMap(link_limit)
        """Session hash -> the replica its last turn ran on; stored object's hash -> the replica that stores it."""
        self.sizes: dict[str, TokenSize] = {}
        self._blocks = 0
        self._all_measured = True

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __getitem__(self, replica_id: ReplicaId) -> Replica:
        return self._replicas[replica_id]

    def __contains__(self, replica_id: ReplicaId) -> bool:
        return replica_id in self._replicas

    @property
    def index_bytes(self) -> int:
        """Memory of the index, each entry at its worst moment (see `ENTRY_BYTES` and `LINK_BYTES`)."""
        return self._blocks * ENTRY_BYTES + (len(self.turns) + len(self.homes)) * LINK_BYTES

    def add(self, replica_id: ReplicaId) -> Replica:
        """Take a replica in, cold. It is believed to be as fast as the fleet's mean."""
        replica = self._replicas.setdefault(replica_id, Replica(replica_id, self._prior_tokens_per_s))
        self._spread_rates()
        return replica

    def _spread_rates(self) -> None:
        """Believe replicas that were not measured yet to be as fast as the mean of those that were.

        At the prior they would get no work in a fleet that is faster, and so never be measured.
        """
        rates = [replica.rate.tokens_per_s for replica in self if replica.rate.measured]
        unmeasured = [replica.rate for replica in self if not replica.rate.measured]
        self._all_measured = not unmeasured
        for rate in unmeasured if rates else ():
            rate.assume(sum(rates) / len(rates))

    def remove(self, replica_id: ReplicaId) -> None:
        """Forget a replica and what it held; requests still running there can be settled."""
        self._blocks -= len(self._replicas.pop(replica_id).mirror)

    def size_of(self, model: str) -> TokenSize:
        """Return what is learnt of a model's tokens."""
        size = self.sizes.get(model)
        if size is None:
            size = self.sizes.setdefault(model if len(self.sizes) < MAX_MODELS else "", TokenSize())
        return size

    def explain(self, request: RoutingRequest, now: float) -> Decision:
        """Decide without counting anything in.

        Raises NoReplicaError when there is no replica.
        """
        return choose(self._recall(request, now, ()), self._policy, request, now)

    def route(self, request: RoutingRequest, now: float, excluded: Collection[ReplicaId] = ()) -> Ticket:
        """Choose a replica for `request`, never one of `excluded`, and count the request in.

        Raises NoReplicaError when the fleet is empty or wholly excluded.
        """
        known = self._recall(request, now, excluded)
        decision = choose(known, self._policy, request, now)
        replica = self._replicas[decision.replica]
        self._sequence += 1
        replica.last_chosen = self._sequence
        if replica.health.failures:
            replica.health.tried(now)
        uncached = decision.prompt_tokens - decision.matched_tokens
        end_s = now + replica.queue_s(now) + uncached / replica.rate.tokens_per_s
        entry = Entry(uncached, request.streaming, now, end_s)
        replica.ledger.open(entry)
        replica.count_recent(uncached, now)
        return Ticket(request, replica, decision, known.scale, self._acquire(replica, request), entry)

    def _recall(self, request: RoutingRequest, now: float, excluded: Collection[ReplicaId]) -> Known:
        candidates = self._candidates(request.model, now, excluded)
        if not candidates:
            raise NoReplicaError
        blocks, scale, lost = [0] * len(candidates), None, None
        prompt = request.prompt
        if prompt is not None:
            blocks = matches(candidates, prompt.hashes)
            scale = TokenScale(prompt, self.size_of(request.model), self.turns, max(blocks))
            if len(candidates) < len(self._replicas):
                lost = self._lost_home(prompt, scale.anchor, candidates)
        hinted = None
        if request.session is not None and (request.session_is_explicit or not max(blocks)):
            hinted = self.homes.get(request.session)
            present = any(replica.replica_id == hinted for replica in candidates)
            if hinted is not None and not present:
                hinted, lost = None, hinted
        return Known(candidates, blocks, scale, hinted, lost, bool(excluded))

    def _candidates(self, model: str, now: float, excluded: Collection[ReplicaId]) -> list[Replica]:
        """Return the replicas that may be tried: failed and excluded ones are out before affinity is looked at.

        Where none is available all are: a connection refused at once costs less than refusing everybody. A model that
        no replica is known to serve goes anywhere, for the engine's own answer.
        """
        everyone = self._replicas.values()
        ready = [
            replica
            for replica in everyone
            if (replica.health.failures == 0 or replica.health.available(now))
            and not replica.report.asleep
            and (not replica.models or model in replica.models)
            and replica.replica_id not in excluded
        ]
        if ready:
            return ready
        allowed = [replica for replica in everyone if replica.replica_id not in excluded]
        allowed = [replica for replica in allowed if replica.serves(model)] or allowed
        return [replica for replica in allowed if replica.available(now)] or allowed

    def _lost_home(self, prompt: Prompt, anchor: int, candidates: list[Replica]) -> ReplicaId | None:
        present = {replica.replica_id for replica in candidates}
        for replica in self:
            if replica.replica_id not in present:
                matched = replica.mirror.match(prompt.hashes)
                if self.turns.deepest(prompt, matched).blocks > anchor:
                    return replica.replica_id
        return None

    def _acquire(self, replica: Replica, request: RoutingRequest) -> Lease | None:
        prompt = request.prompt
        if prompt is None or not self._make_room(len(prompt.hashes)):
            return None
        mirror = replica.mirror
        before = len(mirror)
        lease = mirror.acquire(prompt, mirror.match(prompt.hashes))
        mirror.evict_to(mirror.capacity_bytes)
        self._count_blocks(replica, before)
        return lease

    def _count_blocks(self, replica: Replica, before: int) -> None:
        """Keep the fleet's number of blocks after a change of a mirror; one that has left no longer counts."""
        if self._replicas.get(replica.replica_id) is replica:
            self._blocks += len(replica.mirror) - before

    def _make_room(self, blocks: int) -> bool:
        """Forget the stalest blocks of the fleet until `blocks` more fit; False when too many are in use."""
        while self._blocks + blocks > self._max_blocks:
            idle = [(stamp, replica) for replica in self if (stamp := replica.mirror.oldest_stamp()) is not None]
            if not idle:
                return False
            stalest = min(idle, key=lambda pair: pair[0])[1]
            before = len(stalest.mirror)
            stalest.mirror.evict_entries(EVICTION_BATCH)
            self._count_blocks(stalest, before)
        return True

    def first_byte(self, ticket: Ticket, now: float) -> None:
        """Note the first byte of the answer's body: the prefill is over. Only the first call counts."""
        if ticket.first_byte_s is not None:
            return
        ticket.first_byte_s = now
        ledger = ticket.replica.ledger
        if ticket.request.streaming:
            begun_s = max(ticket.entry.dispatched_s, ledger.last_first_byte_s)
            ticket.replica.rate.observe(ticket.entry.uncached_tokens, now - begun_s)
            if not self._all_measured:
                self._spread_rates()
        ledger.last_first_byte_s = now
        ledger.prefilled(ticket.entry)

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        """Count an attempt out and learn from it. Exactly once per ticket: a second call raises RuntimeError."""
        ticket.close()
        replica = ticket.replica
        replica.ledger.close(ticket.entry)
        self._judge(replica, outcome, now)
        answering = ticket.first_byte_s is not None
        complete = outcome.kind is OutcomeKind.COMPLETED
        served = (complete or (answering and outcome.kind in _CUT_SHORT)) and (outcome.status or 200) < 400
        if ticket.lease is not None:
            self._release(ticket, ticket.lease, outcome, now, computed=served or answering)
        if served:
            learn_from_answer(self.turns, self.size_of(ticket.request.model), ticket, outcome.usage)
            if ticket.request.session is not None and self._replicas.get(replica.replica_id) is replica:
                self.homes.put(ticket.request.session, replica.replica_id)

    def _judge(self, replica: Replica, outcome: Outcome, now: float) -> None:
        if outcome.kind in FAILURES:
            replica.health.failed(outcome.kind, now)
        elif outcome.kind is OutcomeKind.BUSY:
            replica.health.pushed_back(now, outcome.retry_after_s)
        elif outcome.kind is OutcomeKind.COMPLETED and replica.health.failures:
            replica.health.succeeded()

    def _release(self, ticket: Ticket, lease: Lease, outcome: Outcome, now: float, computed: bool) -> None:
        mirror = ticket.replica.mirror
        before = len(mirror)
        size = self.size_of(ticket.request.model)
        if ticket.replica.report.kv_tokens is not None:
            mirror.capacity_bytes = ticket.replica.report.kv_tokens * size.bytes_per_token
        reported = outcome.usage.cached_tokens
        if (
            reported is not None
            and lease.stale_stamp >= 0
            and reported + 2 * ticket.replica.block_tokens < ticket.residency_tokens
        ):
            mirror.evict_unused_since(lease.stale_stamp)
        answer_bytes = int((outcome.usage.completion_tokens or 0) * size.bytes_per_token)
        if ticket.request.prompt is not None:
            answer_bytes += ticket.request.prompt.open_bytes or 0
        mirror.release(lease, now, computed, answer_bytes)
        self._count_blocks(ticket.replica, before)

    def observe_engine(self, replica_id: ReplicaId, report: EngineReport) -> bool:
        """Take in a reading of an engine's metrics; return whether it shows a restart, which empties the mirror."""
        replica = self._replicas[replica_id]
        restarted = _restarted(replica.report, report)
        if restarted:
            self.forget_residency(replica_id)
        foreign = max(0, (report.waiting or 0) - len(replica.ledger.pending))
        replica.observe(report.completed_by(replica.report), foreign * FOREIGN_TOKENS)
        return restarted

    def lost_sight_of(self, replica_id: ReplicaId) -> None:
        """Note that an engine's metrics can't be read: its gauges are unknown, what is lasting stays."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.observe(EngineReport().completed_by(replica.report), foreign_tokens=0.0)

    def forget_residency(self, replica_id: ReplicaId) -> None:
        """Empty a replica's mirror: its process is known to have lost its cache."""
        replica = self._replicas[replica_id]
        before = len(replica.mirror)
        replica.mirror.clear()
        self._count_blocks(replica, before)


def _restarted(before: EngineReport, after: EngineReport) -> bool:
    started_s, starts_s = before.start_time_s, after.start_time_s
    if started_s is not None and starts_s is not None and abs(starts_s - started_s) > 1.0:
        return True
    if before.prefix_queries_tokens is None or after.prefix_queries_tokens is None:
        return False
    return after.prefix_queries_tokens < before.prefix_queries_tokens
