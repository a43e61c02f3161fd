"""The fleet: route a request, count it in; settle it, count it out. Plain function calls that never wait."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import xxhash

from router.core.candidates import Candidates, candidates, lost_home
from router.core.choice import Known, choose, matches
from router.core.curves import CLASS_INDEX
from router.core.health import Care, State
from router.core.index import Index
from router.core.learning import learn_from_answer, settlement_of
from router.core.leases import Lease
from router.core.ledger import Entry, Work
from router.core.policy import Policy
from router.core.price import affinity
from router.core.replica import Replica
from router.core.returning import goes_on_from
from router.core.returns import Returns
from router.core.shortlist import Asked, Shortlist
from router.core.silence import judge
from router.core.speeds import Speeds
from router.core.ticket import Settlement, Ticket
from router.core.token_size import TokenSize
from router.core.tokens import TokenScale
from router.core.types import (
    FAILURES,
    Decision,
    EngineReport,
    NoReplicaError,
    Outcome,
    OutcomeKind,
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
        self.care = Care()
        """How replicas' health is judged; its fields may change at any time."""
        self.forward_unknown = False
        """Whether a model that no replica serves is for an engine to refuse."""
        self._speeds = Speeds(prior_tokens_per_s)
        self._tie_seed = tie_seed
        self._sequence = 0
        self.index = Index(index_bytes)
        self._shortlist = Shortlist(self._replicas, tie_seed)
        self.returns = Returns()
        self.sizes: dict[str, TokenSize] = {}

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
        fresh = Replica(replica_id, self._speeds.prior_tokens_per_s, self.care, self.returns)
        replica = self._replicas.setdefault(replica_id, fresh)
        if replica is fresh:
            self.index.add(replica.mirror)
            self._shortlist.add(replica)
            self.index.list_elsewhere(self._shortlist.block_bytes)
        if self._tie_seed:
            replica.last_chosen = -1 - xxhash.xxh3_64_intdigest(replica_id.encode(), self._tie_seed)
        self._speeds.spread(self._replicas.values(), (replica,))
        return replica

    def weigh(self, replica_id: ReplicaId, weight: float) -> None:
        """Expect a replica to take a share of the work against others' (1: the usual) until its speed is measured."""
        self._replicas[replica_id].weight = weight
        self._speeds.spread(self._replicas.values())

    def remove(self, replica_id: ReplicaId, now: float = 0.0) -> None:
        """Forget a replica and what it held; requests still running there can be settled."""
        replica = self._replicas.pop(replica_id)
        replica.health.remove(now)
        self.index.remove(replica.mirror)
        self._shortlist.remove(replica)

    def size_of(self, model: str) -> TokenSize:
        """Return what is learnt of a model's tokens."""
        size = self.sizes.get(model)
        if size is None:
            size = self.sizes.setdefault(model if len(self.sizes) < MAX_MODELS else "", TokenSize())
        return size

    def explain(self, request: RoutingRequest, now: float) -> Decision:
        """Decide without counting anything in.

        Raises NoReplicaError when there is no replica, UnknownModelError as `candidates.candidates` does.
        """
        return choose(self._recall(request, now, ()), self.policy, request, now)

    def route(self, request: RoutingRequest, now: float, excluded: Collection[ReplicaId] = ()) -> Ticket:
        """Choose a replica for `request`, never one of `excluded`, and count the request in.

        Raises NoReplicaError when the fleet is empty or wholly excluded, UnknownModelError as `candidates.candidates`
        does.
        """
        known = self._recall(request, now, excluded)
        return self._open(known, choose(known, self.policy, request, now), request, now)

    def route_within(self, request: RoutingRequest, now: float, depth_s: float) -> Ticket | Decision:
        """Route `request`, unless the replica that it should go to has more than `depth_s` of prefill ahead.

        Returns the decision alone where that is so. Raises as `route`.
        """
        known = self._recall(request, now, ())
        decision = choose(known, self.policy, request, now)
        if self._replicas[decision.replica].backlog_s(now) > depth_s and not known.last_resort:
            return decision
        return self._open(known, decision, request, now)

    def route_to(self, replica_id: ReplicaId, request: RoutingRequest, now: float) -> Ticket:
        """Count a request in that goes to one replica, whatever it costs there. KeyError: there is no such replica."""
        replica = self._replicas[replica_id]
        known = self._known(Asked(Candidates([replica]), [replica]), request)
        return self._open(known, choose(known, self.policy, request, now), request, now)

    def _open(self, known: Known, decision: Decision, request: RoutingRequest, now: float) -> Ticket:
        replica = self._replicas[decision.replica]
        self.count_chosen(replica)
        if request.model in replica.chosen_for or len(replica.chosen_for) < MAX_MODELS:
            replica.chosen_for[request.model] = self._sequence
        if not replica.health.up:
            replica.health.tried(now)
        matched = decision.matched_tokens
        work = Work(decision.prompt_tokens - matched, matched, decision.reloaded_tokens)
        prefill_s = replica.prefill.seconds(*work)
        end_s = now + replica.queue_s(now) + prefill_s
        entry = Entry(work, prefill_s, request.streaming, now, end_s, replica.peer_load.pending > 0)
        replica.ledger.open(entry)
        replica.recent.add(prefill_s, now)
        lease = None
        if request.prompt is not None:
            lease = self.index.hold(replica.mirror, request.prompt)
            turn = goes_on_from(request.prompt, self.index.turns)
            if turn is not None:
                self.returns.came_back(turn, now)
        return Ticket(self._sequence, request, replica, decision, known.scale, lease, entry)

    def count_chosen(self, replica: Replica) -> None:
        """Note that a replica was chosen last, here or by another router."""
        self._sequence += 1
        replica.last_chosen = self._sequence

    def _recall(self, request: RoutingRequest, now: float, excluded: Collection[ReplicaId]) -> Known:
        stored_at = None if request.stored is None else self.index.homes.get(request.stored)
        hinted = None if request.session is None else self.index.homes.get(request.session)

        def find(replicas: Collection[Replica]) -> Candidates:
            return candidates(replicas, request.model, now, excluded, self.forward_unknown, stored_at)

        only_few = self.policy is affinity  # others compare all with each other
        asked = self._shortlist.ask(find, request, (stored_at, hinted), now, only_few)
        if not asked.found.replicas:
            raise NoReplicaError
        return self._known(asked, request, stored_at, bool(excluded))

    def _known(
        self, asked: Asked, request: RoutingRequest, stored_at: ReplicaId | None = None, retry: bool = False
    ) -> Known:
        replicas = asked.found.replicas
        blocks, scale, lost = [0] * len(replicas), None, None
        prompt = request.prompt
        if prompt is not None:
            blocks = matches(replicas, prompt)
            size, turns = self.size_of(request.model), self.index.turns
            scale = TokenScale(prompt, size, turns, max(blocks), request.tokens)
            if len(replicas) < len(asked.replicas):
                lost = lost_home(asked.replicas, replicas, prompt, scale.anchor, self.index.turns)
        hinted = None
        if request.session is not None and (request.session_is_explicit or not max(blocks)):
            hinted = self.index.homes.get(request.session)
            present = any(replica.replica_id == hinted for replica in replicas)
            if hinted is not None and not present:
                hinted, lost = None, hinted
        drained = lost is not None and lost in self and self[lost].health.state is State.DRAINING
        answer_tokens, last_resort = self.size_of(request.model).answer_tokens, asked.found.last_resort
        return Known(
            replicas, blocks, scale, hinted, lost, stored_at, retry, last_resort, drained, answer_tokens, asked.sample
        )

    def first_byte(self, ticket: Ticket, now: float) -> None:
        """Note the first byte of the answer's body: the prefill is over. Only the first call counts."""
        if ticket.first_byte_s is not None:
            return
        replica = ticket.replica
        ticket.first_byte_s = replica.heard_s = now
        self._speeds.begun(ticket, now)
        replica.ledger.last_first_byte_s = now
        replica.ledger.prefilled(ticket.entry)
        replica.count_batch(now)

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> Settlement:
        """Count an attempt out and learn from it. Exactly once per ticket: a second call raises RuntimeError."""
        ticket.close()
        replica = ticket.replica
        replica.ledger.close(ticket.entry)
        replica.count_batch(now)
        self._speeds.ended(ticket, outcome.usage, self._replicas.values(), now)
        self._judge(replica, outcome, now)
        answering = ticket.first_byte_s is not None
        complete = outcome.kind is OutcomeKind.COMPLETED
        served = (complete or (answering and outcome.kind in _CUT_SHORT)) and (outcome.status or 200) < 400
        settlement = settlement_of(ticket, outcome, served, self.size_of(ticket.request.model))
        if ticket.lease is not None:
            self._release(ticket, ticket.lease, settlement, now)
        if served:
            learn_from_answer(self.index.turns, self.size_of(ticket.request.model), ticket, outcome.usage)
            if ticket.request.prompt is not None:
                self.returns.ended(ticket.request.prompt.hashes[-1], settlement.kind, now)
            if ticket.request.session is not None and self._replicas.get(replica.replica_id) is replica:
                self.index.homes.put(ticket.request.session, replica.replica_id)
        return settlement

    def _judge(self, replica: Replica, outcome: Outcome, now: float) -> None:
        if outcome.kind in FAILURES:
            replica.health.failed(outcome.kind, now)
        elif outcome.kind is OutcomeKind.BUSY:
            replica.health.pushed_back(now, outcome.retry_after_s)
        elif outcome.kind is OutcomeKind.SILENT and not replica.health.up:
            replica.health.silent(now, mute=True)  # it may have been its trial
        elif outcome.kind is OutcomeKind.COMPLETED:
            replica.heard_s = now
            if replica.health.state is not State.READY or replica.health.cause is not None:
                replica.health.succeeded(now)

    def judge_silence(self, now: float) -> list[Replica]:
        """Judge replicas by their silence; return those that are ejected for it now (see `silence.judge`)."""
        return judge(self._replicas.values(), self._speeds.longest_answer_s, now)

    def _release(self, ticket: Ticket, lease: Lease, settlement: Settlement, now: float) -> None:
        replica, index = ticket.replica, self.index
        replica.size_cache(self.size_of(ticket.request.model).bytes_per_token)
        if settlement.overestimated and lease.stale_stamp >= 0:
            index.evict_unused_since(replica.mirror, lease.stale_stamp)
        kind = CLASS_INDEX[settlement.kind]
        index.release(replica.mirror, lease, now, settlement.computed, settlement.answer_bytes, kind)

    def observe_engine(self, replica_id: ReplicaId, report: EngineReport, now: float = 0.0) -> bool:
        """Take in a reading of an engine's metrics; return whether it shows a restart, which empties the mirror."""
        replica = self._replicas[replica_id]
        restarted = report.restarted_since(replica.report)
        if restarted:
            self.forget_residency(replica_id)
            replica.health.restarted(now)
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
