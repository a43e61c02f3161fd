"""The store: tells other routers what this one does, hears what they do, and asks Redis what nobody here knows."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil

from router.adapters.redis_store import encoding
from router.adapters.redis_store.asking import Asking
from router.adapters.redis_store.counts import Counts
from router.adapters.redis_store.encoding import Names
from router.adapters.redis_store.hearing import Hearing
from router.adapters.redis_store.link import TIMEOUT_S, Link
from router.adapters.redis_store.options import Options
from router.adapters.redis_store.ordering import Ordering
from router.adapters.redis_store.outbox import Write
from router.adapters.redis_store.sealing import Keyring
from router.adapters.redis_store.state import State
from router.adapters.redis_store.telling import Telling
from router.core.fleet import Fleet
from router.core.landmarks import Question, Recollection, landmarks, recollect
from router.core.news import Bulletin, Homed, opened, settled
from router.core.peers import Peers
from router.core.ticket import Settlement, Ticket
from router.core.types import ReplicaId

SENT_S = 0.002
"""How long the news that a request was sent may wait, and that of an answer which was as quick. Sending it takes
0.2 ms, which must not come before uvloop writes the request to its socket, nor when an answer comes at once."""

SOON_S = 0.005
"""How long a turn's end may wait for others, where the others have heard of the turn when it was sent."""

LEDGER_S = 0.02
"""How long a first byte, which only frees the ledger, may wait: short against a prefill that others would queue for."""

LEAST_CHANCE = 0.02
"""A turn's end that is followed by another turn once in fifty times is not worth its memory any more."""

LEAST_KEEP_S = 60
"""What every turn's end is kept for: whoever looks at a key sooner than that is still typing."""

LOOK_S = 0.5
"""How often routers that have fallen silent are looked for."""


class RedisStore:
    """One router's part in what all share. It belongs to the event loop that it is started in."""

    def __init__(self, fleet: Fleet, options: Options, router: str, clock: Callable[[], float]) -> None:
        """`router` names this start of this router, never to be used again; `clock` as the fleet's."""
        self.router = router
        self.options = options
        self.peers = Peers(fleet)
        self.counts = Counts()
        self._fleet = fleet
        self._clock = clock
        self.names = Names(options.prefix, Keyring(options.secret))
        self._open: dict[int, ReplicaId | None] = {}
        """Tickets not settled yet, oldest first, each with the home that its session had before."""
        self._next_number = 0
        link = Link(options.address, self.names.channel)
        self.link = link
        self._asking = Asking(link, self.names, self._learn, self.counts, options.deadline_s)
        self.hearing = Hearing(link, self.names, router, self._hear, self._introduce)
        self._telling = Telling(link, self.names, router, fleet, self._oldest_open, self.counts, options, clock)
        self.outbox = self._telling.outbox
        self.ordering = Ordering(link, self.names, fleet, self.counts, time.time)

    @property
    def state(self) -> State:
        """How Redis is."""
        return self.link.condition.state

    @property
    def replica_salt(self) -> bytes:
        """What replica ids are salted with, so that all routers name a replica alike."""
        return self.names.keyring.salt(self.options.prefix.encode())

    def loops(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the loops that are to run until they are cancelled."""
        return [
            self._telling.tell_forever,
            partial(self._asking.ask_forever, self._clock),
            self.hearing.hear_forever,
            self.ordering.agree_forever,
            self._expire_forever,
        ]

    async def tried(self) -> None:
        """Wait until Redis was reached or could not be, a second at the most: first requests may want to ask it.

        Where it was reached, wait for operators' orders as well.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await self._telling.tried.wait()
                if self.link.client is not None:
                    await self.ordering.agreed.wait()

    async def close(self) -> None:
        """Send what is left, say good-bye and disconnect; when the loops have been cancelled."""
        await self.ordering.close()
        await self._telling.close()

    # The port

    @property
    def answers(self) -> bool:
        """See `ports.Store`."""
        return self.link.condition.state is State.UP

    def ask(self, question: Question, then: Callable[[bool], None]) -> None:
        """See `ports.Store`."""
        self._asking.ask(question, then)

    def opened(self, ticket: Ticket) -> None:
        """See `ports.Store`."""
        session = ticket.request.session
        self._open[ticket.number] = None if session is None else self._fleet.index.homes.get(session)
        self._next_number = ticket.number + 1
        self.outbox.tell(opened(ticket))
        self._telling.wake(SENT_S)

    def first_byte(self, ticket: Ticket) -> None:
        """See `ports.Store`."""
        self._telling.wake(LEDGER_S)

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """See `ports.Store`."""
        home_before = self._open.pop(ticket.number, None)
        self.outbox.tell(settled(ticket, settlement))
        if settlement.served:
            self._write_turn(ticket, settlement)
            if ticket.request.session is not None:
                self._write_home(ticket.request.session, ticket.replica.replica_id, home_before)
        lasted_s = self._clock() - ticket.entry.dispatched_s
        self._telling.wake(SOON_S if lasted_s > 2 * SENT_S else SENT_S)

    def stored(self, key: int, replica: ReplicaId) -> None:
        """See `ports.Store`."""
        self.outbox.tell(Homed(key, replica))
        self._write_home(key, replica, None)
        self._telling.wake(SENT_S)

    def _oldest_open(self) -> int:
        return next(iter(self._open), self._next_number)

    def _write_turn(self, ticket: Ticket, settlement: Settlement) -> None:
        prompt, replica = ticket.request.prompt, ticket.replica
        if prompt is None:
            return
        returns_s = max(LEAST_KEEP_S, ceil(self._fleet.returns.horizon_s(settlement.kind, LEAST_CHANCE)))
        for landmark in landmarks(prompt, settlement.prompt_tokens, settlement.answer_tokens):
            held = encoding.held(landmark, replica.replica_id, replica.report.start_time_s, self.names.keyring)
            keep_s = returns_s if landmark.block == prompt.hashes[-1] else None  # others may share the rest
            self.outbox.write(Write(self.names.turn(landmark.block), held, keep_s=keep_s))

    def _write_home(self, key: int, replica: ReplicaId, before: ReplicaId | None) -> None:
        self.outbox.write(Write(self.names.home(key), encoding.home(replica, before), key))

    # What comes in

    def _learn(self, question: Question, recollection: Recollection) -> bool:
        return recollect(self._fleet, question, recollection, self._clock())

    def _hear(self, router: str, bulletin: Bulletin) -> None:
        if router not in self.peers:
            self._introduce()
        self.peers.hear(router, bulletin, self._clock())
        if bulletin.leaving:
            self.hearing.forget(router)

    def _introduce(self) -> None:
        """Say what is under way here: to a newcomer, or as one."""
        self._telling.tell_all()
        self._telling.wake(SOON_S)

    async def _expire_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for router in self.peers.expire(self._clock()):
                self.hearing.forget(router)
