"""Two routers over one fleet of engines, each with books of its own.

Whatever they do and whatever gets lost, nothing is left over; and where nothing gets lost, both know the same.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.core.bounded import LINK_BYTES
from router.core.fleet import Fleet
from router.core.news import Bulletin, News, opened, settled
from router.core.peers import SILENT_S, Peers
from router.core.replica import IDLE, Load
from router.core.residency import ENTRY_BYTES
from router.core.ticket import Ticket
from router.core.types import EngineReport, NoReplicaError, Outcome, OutcomeKind, ReplicaId, RoutingRequest, Usage
from tests.core.worlds import chat
from tests.properties.deeper import runs

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Bulletin).decode

names = st.integers(0, 5)
picks = st.integers(0, 99)
whose = st.integers(0, 1)
luck = st.integers(0, 4)
"""What leaves little to be checked happens at 0 only."""


class Router:
    """A fleet, its open tickets, and what its router has not told yet."""

    def __init__(self, name: str, index_bytes: int, replicas: list[ReplicaId]) -> None:
        self.name = name
        self.starts = 1
        self.index_bytes = index_bytes
        self.fleet = Fleet(index_bytes=index_bytes)
        for replica in replicas:
            self.fleet.add(replica)
        self.peers = Peers(self.fleet)
        self.open: list[Ticket] = []
        self.news: list[News] = []
        self.told: dict[ReplicaId, Load] = {}
        self.next_number = 0

    @property
    def id(self) -> str:
        return f"{self.name}{self.starts}"

    def route(self, request: RoutingRequest, now: float) -> None:
        ticket = self.fleet.route(request, now)
        self.open.append(ticket)
        self.next_number = ticket.number + 1
        self.news.append(opened(ticket))

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        self.open.remove(ticket)
        self.news.append(settled(ticket, self.fleet.settle(ticket, outcome, now)))

    def bulletin(self, whole: bool, now: float) -> bytes:
        told = {} if whole else self.told
        present = {}
        for replica in self.fleet:
            replica.ledger.expire(now)
            present[replica.replica_id] = replica.load
        loads = [(name, load) for name, load in present.items() if load != told.get(name, IDLE)]
        oldest = min((ticket.number for ticket in self.open), default=self.next_number)
        news, self.news, self.told = self.news, [], present
        return encode(Bulletin(oldest, whole, loads, news))


class TwoRouters(RuleBasedStateMachine):
    """What both kinds have in common."""

    index_bytes = 1 << 40

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.asked: list[list[int]] = []
        ids = [f"r{number}" for number in range(3)]
        self.routers = [Router(name, self.index_bytes, ids) for name in "AB"]

    def pick(self, who: int, pick: int) -> Ticket | None:
        tickets = self.routers[who].open
        return tickets[pick % len(tickets)] if tickets else None

    def tell(self, who: int, whole: bool = True) -> None:
        told = decode(self.routers[who].bulletin(whole, self.now))
        self.routers[1 - who].peers.hear(self.routers[who].id, told, self.now)

    @rule(who=whose, name=names, turns=st.integers(1, 4), size=st.integers(1, 40), session=st.booleans())
    def route(self, who: int, name: int, turns: int, size: int, session: bool) -> None:
        said = []
        for number in range(turns):
            said += [("user", f"{name} {number} " * size * 10), ("assistant", f"{name}-{number} " * 50)]
        request = chat(("system", "shared " * 100), *said, session=str(name) if session else None)
        assert request.prompt is not None
        self.asked.append(request.prompt.hashes)
        try:
            self.routers[who].route(request, self.now)
        except NoReplicaError:
            assert len(self.routers[who].fleet) == 0

    @rule(who=whose, session=names)
    def route_keyless(self, who: int, session: int) -> None:
        request = RoutingRequest("m", "chat", None, 100, session=session, session_is_explicit=True)
        if len(self.routers[who].fleet):
            self.routers[who].route(request, self.now)

    @rule(who=whose, pick=picks)
    def first_byte(self, who: int, pick: int) -> None:
        ticket = self.pick(who, pick)
        if ticket is not None:
            self.routers[who].fleet.first_byte(ticket, self.now)

    @rule(seconds=st.floats(0.0, 1.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=whose)
    def settle_all(self, who: int) -> None:
        for ticket in list(self.routers[who].open):
            self.routers[who].settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), self.now)

    @invariant()
    def the_index_is_counted_and_within_its_budget(self) -> None:
        for router in self.routers:
            index = router.fleet.index
            blocks = sum(len(replica.mirror) for replica in router.fleet)
            assert index.size_bytes == blocks * ENTRY_BYTES + (len(index.turns) + len(index.homes)) * LINK_BYTES
            assert index.size_bytes <= self.index_bytes

    @invariant()
    def what_is_held_is_what_is_open_here_or_was_heard_to_be(self) -> None:
        for router in self.routers:
            heard = [entry for _, peer in router.peers for entry in peer.open.values()]
            leases = [(ticket.replica, ticket.lease) for ticket in router.open] + heard
            for replica in router.fleet:
                mirror = replica.mirror
                mine = [lease for where, lease in leases if where is replica and lease is not None]
                mine = [lease for lease in mine if lease.epoch == mirror.epoch]
                assert all(mirror.match(lease.hashes) == len(lease.hashes) for lease in mine)
                blocks: dict[int, int] = {}
                for lease in mine:
                    sizes = zip(lease.hashes, lease.ends_bytes, [0, *lease.ends_bytes], strict=False)
                    blocks |= {block: end - start for block, end, start in sizes}
                assert mirror.held_bytes == sum(blocks.values())
                assert mirror.idle_bytes >= 0

    def teardown(self) -> None:
        for who in (0, 1):
            self.settle_all(who)
        for who in (0, 1):
            self.tell(who)
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        for router in self.routers:
            self.the_index_is_counted_and_within_its_budget()
            for replica in router.fleet:
                assert (replica.load, replica.peer_load, replica.mirror.held_bytes) == (IDLE, IDLE, 0)
            assert all(not peer.open and not peer.loads for _, peer in router.peers)


class Lossy(TwoRouters):
    """Bulletins get lost, come late or twice; routers and replicas come and go; engines restart; the index is small."""

    index_bytes = 400 * ENTRY_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[tuple[int, str, bytes]] = []
        self.said_last: tuple[int, str, bytes] | None = None

    @rule(
        who=whose,
        pick=picks,
        kind=st.sampled_from(list(OutcomeKind)),
        cached=st.none() | st.integers(0, 5_000),
        status=st.sampled_from([200, 400, 503]),
    )
    def settle(self, who: int, pick: int, kind: OutcomeKind, cached: int | None, status: int) -> None:
        ticket = self.pick(who, pick)
        if ticket is not None:
            usage = Usage(None if cached is None else cached + 100, cached, 50, "stop")
            self.routers[who].settle(ticket, Outcome(kind, status, usage), self.now)

    def told_by(self, who: int, whole: bool) -> tuple[int, str, bytes]:
        return 1 - who, self.routers[who].id, self.routers[who].bulletin(whole, self.now)

    @rule(who=whose, whole=st.booleans())
    def is_heard(self, who: int, whole: bool) -> None:
        self.said_last = self.told_by(who, whole)
        self.hear(*self.said_last)

    @rule(who=whose, whole=st.booleans())
    def is_lost(self, who: int, whole: bool) -> None:
        self.told_by(who, whole)

    @rule(who=whose, whole=st.booleans())
    def is_late(self, who: int, whole: bool) -> None:
        self.under_way.append(self.told_by(who, whole))

    @precondition(lambda self: self.under_way)
    @rule()
    def arrives(self) -> None:
        self.said_last = self.under_way.pop(0)
        self.hear(*self.said_last)

    @precondition(lambda self: self.said_last)
    @rule()
    def comes_twice(self) -> None:
        assert self.said_last is not None
        self.hear(*self.said_last)

    def hear(self, who: int, router: str, bulletin: bytes) -> None:
        self.routers[who].peers.hear(router, decode(bulletin), self.now)

    @rule(who=whose)
    def looks_for_silent_ones(self, who: int) -> None:
        self.routers[who].peers.expire(self.now)

    @rule(who=whose, luck=luck)
    def is_killed(self, who: int, luck: int) -> None:
        """It starts anew, under another id."""
        if luck:
            return
        router = self.routers[who]
        ids = [replica.replica_id for replica in router.fleet]
        self.routers[who] = reborn = Router(router.name, self.index_bytes, ids)
        reborn.starts = router.starts + 1

    @rule(who=whose, number=st.integers(0, 4), luck=luck)
    def replica_comes_or_goes(self, who: int, number: int, luck: int) -> None:
        if luck:
            return
        fleet, name = self.routers[who].fleet, f"r{number}"
        if name in fleet:
            fleet.remove(name)
        else:
            fleet.add(name)

    @rule(who=whose, number=st.integers(0, 4), luck=luck, tokens=st.none() | st.integers(100, 50_000))
    def metrics_are_read(self, who: int, number: int, luck: int, tokens: int | None) -> None:
        start = 1 if luck else 2
        if f"r{number}" in self.routers[who].fleet:
            report = EngineReport(start_time_s=start * 10.0, kv_tokens=tokens, waiting=3)
            self.routers[who].fleet.observe_engine(f"r{number}", report)

    def teardown(self) -> None:
        for late in self.under_way:
            self.hear(*late)
        self.both_lose_each_other()
        for who in (0, 1):
            self.settle_all(who)
            self.tell(who)
        self.now += SILENT_S / 2
        for who in (0, 1):
            self.tell(who)
        self.now += SILENT_S / 2 + 0.1
        for router in self.routers:  # earlier starts of the other router are silent for too long, the last is not
            router.peers.expire(self.now)
        assert [len(router.peers) for router in self.routers] == [1, 1]
        self.nothing_is_left()
        for router in self.routers:
            for name, _ in list(router.peers):
                router.peers.forget(name, self.now)
            assert len(router.peers) == 0
        self.nothing_is_left()

    def both_lose_each_other(self) -> None:
        """Both are heard, fall silent while all their requests are open, and are heard again."""
        for who in (0, 1):
            self.tell(who)
        self.now += SILENT_S + 0.1
        for router in self.routers:
            router.peers.expire(self.now)
            assert len(router.peers) == 0
            assert all(replica.peer_load == IDLE for replica in router.fleet)
        self.what_is_held_is_what_is_open_here_or_was_heard_to_be()
        for who in (0, 1):
            self.tell(who)


class Agreeing(TwoRouters):
    """Nothing gets lost, no cache is full: both routers' mirrors are the same at the end."""

    def everything_is_told(self) -> None:
        for who in (0, 1):
            self.tell(who)

    def both_know_the_same(self) -> None:
        one, other = (router.fleet for router in self.routers)
        for replica in one:
            for hashes in self.asked:
                assert replica.mirror.match(hashes) == other[replica.replica_id].mirror.match(hashes)

    def teardown(self) -> None:
        super().teardown()
        self.both_know_the_same()


class Late(Agreeing):
    """Bulletins come in any order between the routers, so only what engines do compute is the same for both."""

    @rule(
        who=whose,
        pick=picks,
        kind=st.sampled_from([OutcomeKind.COMPLETED, OutcomeKind.CLIENT_LEFT, OutcomeKind.DIED]),
        status=st.sampled_from([200, 400]),
    )
    def settle(self, who: int, pick: int, kind: OutcomeKind, status: int) -> None:
        ticket = self.pick(who, pick)
        if ticket is not None:
            self.routers[who].fleet.first_byte(ticket, self.now)
            self.routers[who].settle(ticket, Outcome(kind, status), self.now)

    @rule(who=whose, whole=st.booleans())
    def one_tells(self, who: int, whole: bool) -> None:
        self.tell(who, whole)

    @rule(number=st.integers(0, 2))
    def engine_restarts(self, number: int) -> None:
        self.everything_is_told()
        for router in self.routers:
            router.fleet.forget_residency(f"r{number}")

    @rule()
    def compare(self) -> None:
        self.everything_is_told()
        self.both_know_the_same()


class AtOnce(Agreeing):
    """Each hears of everything before the next thing happens: then all ends are the same for both."""

    @rule(
        who=whose,
        pick=picks,
        kind=st.sampled_from(list(OutcomeKind)),
        cached=st.none() | st.integers(0, 5_000),
        status=st.sampled_from([200, 400, 503]),
    )
    def settle(self, who: int, pick: int, kind: OutcomeKind, cached: int | None, status: int) -> None:
        ticket = self.pick(who, pick)
        if ticket is not None:
            usage = Usage(None if cached is None else cached + 100, cached, 50, "stop")
            self.routers[who].settle(ticket, Outcome(kind, status, usage), self.now)

    @rule(number=st.integers(0, 2))
    def engine_restarts(self, number: int) -> None:
        for router in self.routers:
            router.fleet.forget_residency(f"r{number}")

    @invariant()
    def both_are_told_and_know_the_same(self) -> None:
        for who in (0, 1):
            self.tell(who, whole=False)
        self.both_know_the_same()
        one, other = (router.fleet for router in self.routers)
        for replica in one:
            there = other[replica.replica_id]
            assert (replica.peer_load, there.peer_load) == (there.load, replica.load)
            assert replica.mirror.held_bytes == there.mirror.held_bytes


STEPS = runs(80)
Lossy.TestCase.settings = Late.TestCase.settings = AtOnce.TestCase.settings = STEPS
TestLossy, TestLate, TestAtOnce = Lossy.TestCase, Late.TestCase, AtOnce.TestCase
