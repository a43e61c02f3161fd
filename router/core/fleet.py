"""The fleet: route a request, count it in; settle it, count it out. Plain function calls that never wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import xxhash

from router.core.choice import Known, choose, matches
from router.core.index import Index
from router.core.latency import TokenSize
from router.core.learning import learn_from_answer
from router.core.leases import Lease
from router.core.ledger import Entry
from router.core.policy import Policy, affinity
from router.core.replica import Replica
from router.core.ticket import Settlement, Ticket
from router.core.tokens import TokenScale
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

FOREIGN_TOKENS = 500
"""Uncached tokens that a waiting request of somebody else's is taken for: a chat's turn with a pasted page."""

MAX_MODELS = 256
"""Models with token counts of their own. Names come from clients, so there is a limit; the rest share one account."""

_CUT_SHORT = frozenset({OutcomeKind.CLIENT_LEFT, OutcomeKind.DIED})
"""Ends that leave a session's history computed, if the answer had begun."""


class Fleet:
    """All replicas, what is believed of them, and the running account of requests. Single-threaded."""

    def __init__(
        self,
        policy: Policy = affinity,
        index_bytes: int = 256 << 20,
        prior_tokens_per_s: float = 8_000.0,
        tie_seed: int = 0,
    ) -> None:
        """Start empty. `index_bytes` bounds the memory of everything remembered about prompts and sessions.

        `tie_seed`: routers of one fleet have different ones, so that they do not all begin with the same replica.
        """
        self._replicas: dict[ReplicaId, Replica] = {}
        self.policy = policy
        self._prior_tokens_per_s = prior_tokens_per_s
        self._tie_seed = tie_seed
        self._sequence = 0
        self.index = Index(index_bytes)
        self.sizes: dict[str, TokenSize] = {}
        self._all_measured = True

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas.values())

    def __getitem__(self, replica_id: ReplicaId) -> Replica:
        return self._replicas[replica_id]

    def __contains__(self, replica_id: ReplicaId) -> bool:
        return replica_id in self._replicas

    def get(self, replica_id: ReplicaId) -> Replica | None:
        """Return a replica, None when it is not, or no longer, in the fleet."""
        return self._replicas.get(replica_id)

    def add(self, replica_id: ReplicaId) -> Replica:
        """Take a replica in, cold. It is believed to be as fast as the fleet's mean."""
        replica = self._replicas.setdefault(replica_id, Replica(replica_id, self._prior_tokens_per_s))
        self.index.add(replica.mirror)
        if self._tie_seed:
            replica.last_chosen = -1 - xxhash.xxh3_64_intdigest(replica_id.encode(), self._tie_seed)
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
        self.index.remove(self._replicas.pop(replica_id).mirror)

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
        return choose(self._recall(request, now, ()), self.policy, request, now)

    def route(self, request: RoutingRequest, now: float, excluded: Collection[ReplicaId] = ()) -> Ticket:
        """Choose a replica for `request`, never one of `excluded`, and count the request in.

        Raises NoReplicaError when the fleet is empty or wholly excluded.
        """
        known = self._recall(request, now, excluded)
        decision = choose(known, self.policy, request, now)
        replica = self._replicas[decision.replica]
        self.count_chosen(replica)
        if replica.health.failures:
            replica.health.tried(now)
        uncached = decision.prompt_tokens - decision.matched_tokens
        end_s = now + replica.queue_s(now) + uncached / replica.rate.tokens_per_s
        entry = Entry(uncached, request.streaming, now, end_s, replica.peer_load.pending > 0)
        replica.ledger.open(entry)
        replica.count_recent(uncached, now)
        lease = None if request.prompt is None else self.index.hold(replica.mirror, request.prompt)
        return Ticket(self._sequence, request, replica, decision, known.scale, lease, entry)

    def count_chosen(self, replica: Replica) -> None:
        """Note that a replica was chosen last, here or by another router."""
        self._sequence += 1
        replica.last_chosen = self._sequence

    def _recall(self, request: RoutingRequest, now: float, excluded: Collection[ReplicaId]) -> Known:
        candidates = self._candidates(request.model, now, excluded)
        if not candidates:
            raise NoReplicaError
        blocks, scale, lost = [0] * len(candidates), None, None
        prompt = request.prompt
        if prompt is not None:
            blocks = matches(candidates, prompt.hashes)
            scale = TokenScale(prompt, self.size_of(request.model), self.index.turns, max(blocks))
            if len(candidates) < len(self._replicas):
                lost = self._lost_home(prompt, scale.anchor, candidates)
        hinted = None
        if request.session is not None and (request.session_is_explicit or not max(blocks)):
            hinted = self.index.homes.get(request.session)
            present = any(replica.replica_id == hinted for replica in candidates)
            if hinted is not None and not present:
                hinted, lost = None, hinted
        stored_at = None if request.stored is None else self.index.homes.get(request.stored)
        return Known(candidates, blocks, scale, hinted, lost, stored_at, bool(excluded))

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
                if self.index.turns.deepest(prompt, matched).blocks > anchor:
                    return replica.replica_id
        return None

    def first_byte(self, ticket: Ticket, now: float) -> None:
        """Note the first byte of the answer's body: the prefill is over. Only the first call counts."""
        if ticket.first_byte_s is not None:
            return
        ticket.first_byte_s = now
        ledger = ticket.replica.ledger
        among_peers = ticket.entry.among_peers or ticket.replica.peer_load.pending > 0
        if ticket.request.streaming and not among_peers:
            begun_s = max(ticket.entry.dispatched_s, ledger.last_first_byte_s)
            ticket.replica.rate.observe(ticket.entry.uncached_tokens, now - begun_s)
            if not self._all_measured:
                self._spread_rates()
        ledger.last_first_byte_s = now
        ledger.prefilled(ticket.entry)

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> Settlement:
        """Count an attempt out and learn from it. Exactly once per ticket: a second call raises RuntimeError."""
        ticket.close()
        replica = ticket.replica
        replica.ledger.close(ticket.entry)
        self._judge(replica, outcome, now)
        answering = ticket.first_byte_s is not None
        complete = outcome.kind is OutcomeKind.COMPLETED
        served = (complete or (answering and outcome.kind in _CUT_SHORT)) and (outcome.status or 200) < 400
        settlement = self._settlement(ticket, outcome, served)
        if ticket.lease is not None:
            self._release(ticket, ticket.lease, settlement, now)
        if served:
            learn_from_answer(self.index.turns, self.size_of(ticket.request.model), ticket, outcome.usage)
            if ticket.request.session is not None and self._replicas.get(replica.replica_id) is replica:
                self.index.homes.put(ticket.request.session, replica.replica_id)
        return settlement

    def _settlement(self, ticket: Ticket, outcome: Outcome, served: bool) -> Settlement:
        usage, size = outcome.usage, self.size_of(ticket.request.model)
        answer_tokens = usage.completion_tokens or 0
        answer_bytes = int(answer_tokens * size.bytes_per_token)
        if ticket.request.prompt is not None:
            answer_bytes += ticket.request.prompt.open_bytes or 0
        cached, believed = usage.cached_tokens, ticket.residency_tokens
        return Settlement(
            served=served,
            computed=served or ticket.first_byte_s is not None,
            overestimated=cached is not None and cached + 2 * ticket.replica.block_tokens < believed,
            answer_bytes=answer_bytes,
            prompt_tokens=usage.prompt_tokens or ticket.decision.prompt_tokens,
            answer_tokens=answer_tokens,
            bytes_per_token=size.bytes_per_token,
        )

    def _judge(self, replica: Replica, outcome: Outcome, now: float) -> None:
        if outcome.kind in FAILURES:
            replica.health.failed(outcome.kind, now)
        elif outcome.kind is OutcomeKind.BUSY:
            replica.health.pushed_back(now, outcome.retry_after_s)
        elif outcome.kind is OutcomeKind.COMPLETED and replica.health.failures:
            replica.health.succeeded()

    def _release(self, ticket: Ticket, lease: Lease, settlement: Settlement, now: float) -> None:
        replica, index = ticket.replica, self.index
        replica.size_cache(self.size_of(ticket.request.model).bytes_per_token)
        if settlement.overestimated and lease.stale_stamp >= 0:
            index.evict_unused_since(replica.mirror, lease.stale_stamp)
        index.release(replica.mirror, lease, now, settlement.computed, settlement.answer_bytes)

    def observe_engine(self, replica_id: ReplicaId, report: EngineReport) -> bool:
        """Take in a reading of an engine's metrics; return whether it shows a restart, which empties the mirror."""
        replica = self._replicas[replica_id]
        restarted = _restarted(replica.report, report)
        if restarted:
            self.forget_residency(replica_id)
        foreign = max(0, (report.waiting or 0) - len(replica.ledger.pending) - replica.peer_load.pending)
        replica.observe(report.completed_by(replica.report), foreign * FOREIGN_TOKENS)
        return restarted

    def lost_sight_of(self, replica_id: ReplicaId) -> None:
        """Note that an engine's metrics can't be read: its gauges are unknown, what is lasting stays."""
        replica = self._replicas.get(replica_id)
        if replica is not None:
            replica.observe(EngineReport().completed_by(replica.report), foreign_tokens=0.0)

    def forget_residency(self, replica_id: ReplicaId) -> None:
        """Empty a replica's mirror: its process is known to have lost its cache."""
        self.index.clear(self._replicas[replica_id].mirror)


def _restarted(before: EngineReport, after: EngineReport) -> bool:
    started_s, starts_s = before.start_time_s, after.start_time_s
    if started_s is not None and starts_s is not None and abs(starts_s - started_s) > 1.0:
        return True
    if before.prefix_queries_tokens is None or after.prefix_queries_tokens is None:
        return False
    return after.prefix_queries_tokens < before.prefix_queries_tokens
