"""What all exchanges share: the fleet, the pools, the limits, and a sweep that ends what has fallen silent."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from router.core.admission import Admission, Rules
from router.core.fleet import Fleet
from router.core.landmarks import Question, question
from router.core.misses.account import account
from router.core.misses.sessions import Sessions
from router.core.misses.turn import Recognised
from router.core.misses.types import TurnAccount
from router.core.replica import Replica
from router.core.ticket import Ticket
from router.core.types import Decision, Outcome, OutcomeKind, ReplicaId, RoutingRequest, Usage
from router.core.waiting import Waiting
from router.ports import Audience, Keeper, Recorder, RequestRecord, Store, Tokenizer, Tracer
from router.proxy.bodies import Bodies
from router.proxy.errors import RouterError
from router.proxy.feedback import response_id
from router.proxy.incoming import Incoming
from router.proxy.later import Later
from router.proxy.model_field import with_model
from router.proxy.openai import PRIORITY_HEADERS, is_batch, read_request, stored_object_hash
from router.proxy.pool import Address, Pool
from router.proxy.shortage import Shortage
from router.proxy.waiting_room import WaitingRoom

LOGGER = logging.getLogger("warmroute.fleet")

SWEEP_S = 0.5
"""How often silent exchanges and idle connections are looked for."""


class Active(Protocol):
    """A request under way."""

    def look(self, now: float) -> None:
        """End it if nothing has moved for too long; keep it open while it waits."""

    def look_at_hosts(self, now: float) -> None:
        """End it, or its attempt, if the host of its client or replica has vanished."""

    def cut(self, error: RouterError) -> None:
        """End it now, wherever it stands; no replica is to blame."""


class Idle(Protocol):
    """A client connection that waits for its next request."""

    def close_if_idle(self, now: float) -> None:
        """Close it if it has waited for longer than connections are kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the data plane."""

    max_body_bytes: int = 64 << 20
    max_retries: int = 2
    """Alternates tried after the first replica, before the first byte of an answer."""
    silence_timeout_s: float = 300.0
    connect_timeout_s: float = 2.0
    vanish_timeout_s: float = 30.0
    upstream_idle_s: float = 4.0
    sse_keepalive_s: float = 0.0
    """Silence after which a stream that has not begun gets a comment; 0: none."""


class Nobody:
    """The audience while there is none."""

    def requests_finished(self, records: Sequence[RequestRecord]) -> None:
        """Requests are over."""

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """An attempt failed."""


def _nothing() -> None:
    """Nobody wants to know."""


class Plane:
    """The data plane's shared state."""

    def __init__(
        self,
        fleet: Fleet,
        limits: Limits,
        authorization: bytes | None = None,
        store: Store | None = None,
        clock: Callable[[], float] = time.monotonic,
        tracer: Tracer | None = None,
    ) -> None:
        """`authorization` replaces the clients' towards engines.

        `store`: what is shared with other routers; None for a router on its own. `tracer`: None traces nothing.
        """
        self.fleet = fleet
        self.audience: Audience = Nobody()
        self.store = store
        self.tracer = tracer
        self.label: Callable[[Ticket, bytes | None, bytes], bytes] | None = None
        """Gives header lines that name an attempt to its engine, from it, the client's own session header and the body;
        None: engines tell nothing of single requests."""
        self.tokenizer: Tokenizer | None = None
        """Makes the engine's tokens of prompts; None makes none."""
        self.recorder: Recorder | None = None
        """None while nothing is recorded."""
        self.keeper: Keeper | None = None
        """None where no session is kept warm."""
        self.limits = limits
        self.bodies = Bodies()
        self.shortage = Shortage()
        self.session_headers: tuple[bytes, ...] = ()
        """In lower case; the first one that a request has names its session."""
        self.authorization = authorization
        self.clock = clock
        self.aliases: dict[str, str] = {}
        """Names that clients may use -> the models they stand for."""
        self.opening_seen: Callable[[RoutingRequest, bytes], None] | None = None
        """Is shown every request that begins with what sessions share, and its body."""
        self.unknown_model_seen: Callable[[], None] = _nothing
        """Is told that a model was asked for which no replica serves."""
        self.sessions = Sessions(secrets.randbits(64))
        self.later = Later(self._tell)
        self.admission = Admission(fleet, Rules(depth_s=0.0))
        self.room = WaitingRoom(self.admission, self._counted_in, clock)
        self.pools: dict[ReplicaId, Pool] = {}
        self.active: set[Active] = set()
        self.sweeps: list[Callable[[float], None]] = []
        """Called with the time by every sweep."""
        self.idle: set[Idle] = set()
        """Client connections between two requests."""
        self.stopping = False
        """Whether each answer is to be the last one on its connection."""

    # The fleet's calls, and what the store is told of them

    def question(self, request: RoutingRequest) -> Question | None:
        """Return what is to be asked of the store before a request is routed; None for nothing."""
        if self.store is None or not self.store.answers:
            return None
        return question(self.fleet, request)

    def read(self, incoming: Incoming) -> RoutingRequest:
        """Read what routing needs of a request. Where it names an alias, its body names the model from here on."""
        session = incoming.first_of(self.session_headers)
        request = read_request(incoming.path, incoming.body(), session)
        if request.model in self.aliases:
            incoming.replace_body(with_model(incoming.body(), self.aliases[request.model]))
            request = read_request(incoming.path, incoming.body(), session)
        if self.opening_seen is not None and request.prompt is not None and request.prompt.opening_blocks:
            self.opening_seen(request, incoming.body())
        urgency = incoming.first_of(PRIORITY_HEADERS)
        return request if urgency is None else request._replace(batch=is_batch(urgency))

    def admit(self, request: RoutingRequest, tenant: int) -> Ticket | Waiting:
        """See `Admission.route`; one that has to wait is to be brought to the waiting room."""
        found = self.admission.route(request, tenant, self.clock())
        if isinstance(found, Ticket):
            self._counted_in(found)
        return found

    def route(self, request: RoutingRequest, excluded: list[ReplicaId]) -> Ticket:
        """See `Fleet.route`."""
        ticket = self.fleet.route(request, self.clock(), excluded)
        self._counted_in(ticket)
        return ticket

    def _counted_in(self, ticket: Ticket) -> None:
        if self.store is not None:
            self.store.opened(ticket)

    def first_byte(self, ticket: Ticket, now: float) -> None:
        """See `Fleet.first_byte`."""
        self.fleet.first_byte(ticket, now)
        if self.store is not None:
            self.store.first_byte(ticket)
        self.room.released(ticket.replica.replica_id)

    def settle(self, ticket: Ticket, outcome: Outcome) -> None:
        """See `Fleet.settle`."""
        settlement = self.fleet.settle(ticket, outcome, self.clock())
        if self.store is not None:
            self.store.settled(ticket, settlement)
        if self.keeper is not None:
            self.keeper.settled(ticket, settlement, outcome.usage)
        self.room.released(ticket.replica.replica_id)

    # What becomes of turns

    def recognise(self, request: RoutingRequest, arrived_s: float, ended: bool = False) -> Recognised | None:
        """Find a request's session and what was changed of its history; nothing is learnt. See `Sessions.recognise`."""
        return self.sessions.recognise(request, self.fleet.index.turns, arrived_s, ended)

    def account(
        self,
        seen: Recognised | None,
        request: RoutingRequest,
        decision: Decision,
        usage: Usage,
        tried: Sequence[ReplicaId] = (),
    ) -> TurnAccount | None:
        """See `misses.account.account`; None where there is nothing to account for."""
        if seen is None or request.prompt is None:
            return None
        return account(self.fleet, seen, request.prompt, decision, usage, tried)

    def learn_turn(self, seen: Recognised, ticket: Ticket, usage: Usage, ended_s: float) -> None:
        """Remember a turn that was served, for the one that follows it."""
        tokens, replica = usage.prompt_tokens, ticket.replica
        epoch = replica.mirror.epoch if ticket.lease is None else ticket.lease.epoch
        prompt_tokens = tokens or ticket.decision.prompt_tokens
        self.sessions.learn(seen, prompt_tokens, bool(tokens), replica.replica_id, epoch, ended_s)

    def _tell(self, records: Sequence[RequestRecord]) -> None:
        self.audience.requests_finished(records)

    def remember_response(self, answer_start: bytes, replica_id: ReplicaId) -> None:
        """Note which replica stores the response that an answer begins to tell of, if it does."""
        stored = response_id(answer_start)
        if stored is None:
            return
        key = stored_object_hash(stored)
        self.fleet.index.homes.put(key, replica_id)
        if self.store is not None:
            self.store.stored(key, replica_id)

    # Replicas

    def add_replica(self, replica_id: ReplicaId, address: Address, rank: int | None = None) -> Replica:
        """Take a replica in. `rank`: the data-parallel rank that it is of the engine at `address`."""
        limits = self.limits
        pool = Pool(address, limits.connect_timeout_s, limits.upstream_idle_s, rank, limits.vanish_timeout_s)
        self.pools[replica_id] = pool
        return self.fleet.add(replica_id)

    def remove_replica(self, replica_id: ReplicaId) -> None:
        """Send nothing more to a replica; running exchanges end as they would."""
        self.fleet.remove(replica_id, self.clock())
        self.pools.pop(replica_id).close()

    async def sweep_forever(self) -> None:
        """End silent exchanges and close connections that were idle for too long, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self.clock()
            for replica in self.fleet.judge_silence(now):
                LOGGER.warning("replica %s says nothing while others answer: it is left", replica.replica_id)
            for exchange in list(self.active):
                exchange.look(now)
            for connection in list(self.idle):
                connection.close_if_idle(now)
            for sweep in self.sweeps:
                sweep(now)
            for pool in self.pools.values():
                pool.expire()

    def close(self) -> None:
        """Close all idle upstream connections, and the waiting room; account for what has ended."""
        if self.tokenizer is not None:
            self.tokenizer.close()
        self.room.close()
        self.later.flush()
        for pool in self.pools.values():
            pool.close()
