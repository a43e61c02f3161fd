"""Holding requests: who waits, for which replica, who is sent when there is room, and who is turned away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from router.core.admission import MOVES, RETRIES, Admission, QueueFullError, Rules
from router.core.fleet import Fleet
from router.core.health import State
from router.core.ticket import Ticket
from router.core.types import (
    EngineReport,
    Outcome,
    OutcomeKind,
    ReplicaId,
    RoutingRequest,
    UnknownModelError,
    Usage,
)
from router.core.waiting import Place, Priority, Waiting
from tests.core.worlds import chat, fleet_of

RATE = 8_000.0
BIG = ("user", "z" * int(2.0 * RATE * 4))


def small(model: str = "m", tokens: int = 400, *, batch: bool = False) -> RoutingRequest:
    """A request that is not read: 0.05 s of prefill, the same everywhere."""
    return RoutingRequest(model, "unknown", None, tokens * 4, True, batch=batch)


def turn(number: int, seconds: float, *more_s: float) -> RoutingRequest:
    """A chat's turn: the first one has so many seconds of prefill, each further one adds some."""
    texts = [f"chat {number}, {at}: " + "x" * int(part_s * RATE * 4) for at, part_s in enumerate((seconds, *more_s))]
    return chat(*(("user", text) for text in texts))


class Door:
    """A fleet with a queue in front, stepped by hand."""

    def __init__(self, replicas: int = 1, **rules: Any) -> None:
        self.fleet: Fleet = fleet_of(replicas, kv_tokens=10_000_000)
        self.admission = Admission(self.fleet, Rules(**({"depth_s": 1.0} | rules)))
        self.sent: dict[ReplicaId, list[Ticket]] = {replica.replica_id: [] for replica in self.fleet}

    def fill(self, replica: ReplicaId, seconds: float = 1.5) -> None:
        """Give a replica so much to do."""
        tokens = 2_000
        for _ in range(round(seconds * RATE / tokens)):
            self.took(self.fleet.route_to(replica, small(tokens=tokens), 0.0))

    def lived(self, request: RoutingRequest, replica: ReplicaId) -> None:
        """Let a turn have run on a replica."""
        ticket = self.fleet.route_to(replica, request, 0.0)
        self.fleet.first_byte(ticket, 0.0)
        assert request.prompt is not None
        usage = Usage(round(request.prompt.total_bytes / 4), ticket.decision.matched_tokens, 1, "stop")
        self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), 0.0)

    def at_home(self, number: int, replica: ReplicaId, more_s: float = 0.05) -> RoutingRequest:
        """Return the second turn of a chat whose first one ran on a replica; 2 s would be computed anew elsewhere."""
        self.lived(turn(number, 2.0), replica)
        return turn(number, 2.0, more_s)

    def took(self, ticket: Ticket) -> Ticket:
        self.sent.setdefault(ticket.decision.replica, []).append(ticket)
        return ticket

    def ask(self, request: RoutingRequest, now: float = 0.0, tenant: int = 0) -> Ticket | Waiting:
        found = self.admission.route(request, tenant, now)
        return self.took(found) if isinstance(found, Ticket) else found

    def waits(self, request: RoutingRequest, now: float = 0.0, tenant: int = 0) -> Waiting:
        found = self.ask(request, now, tenant)
        assert isinstance(found, Waiting)
        return found

    def goes(self, request: RoutingRequest, now: float = 0.0) -> ReplicaId:
        found = self.ask(request, now)
        assert isinstance(found, Ticket)
        return found.decision.replica

    def first_byte(self, replica: ReplicaId, now: float) -> list[Waiting]:
        """Let the oldest prefill there be over; return who is sent for it."""
        ticket = next(ticket for ticket in self.sent[replica] if ticket.first_byte_s is None)
        self.fleet.first_byte(ticket, now)
        return self.take(self.admission.released(replica, now))

    def empty(self, replica: ReplicaId, now: float) -> None:
        """Let all prefills there be over, behind the queue's back."""
        for ticket in self.sent[replica]:
            self.fleet.first_byte(ticket, now)

    def take(self, sent: Iterable[tuple[Waiting, Ticket]]) -> list[Waiting]:
        return [waiting for waiting, ticket in sent if self.took(ticket)]

    def tick(self, now: float) -> list[Waiting]:
        return self.take(self.admission.tick(now))

    def reconsider(self, now: float) -> list[Waiting]:
        return self.take(self.admission.reconsider(now))

    @property
    def went(self) -> Counter[ReplicaId]:
        return Counter({replica: len(tickets) for replica, tickets in self.sent.items()})


# Who waits


def test_a_newcomer_with_nothing_waiting_is_served_at_once() -> None:
    door = Door()
    assert door.goes(small()) == "r0"


def test_from_the_depth_on_requests_wait_and_nothing_is_counted_in() -> None:
    door = Door()
    door.fill("r0", 1.5)
    streams = door.fleet["r0"].ledger.streams
    waiting = door.waits(small())
    assert waiting.place == Place(None, "m")
    assert door.fleet["r0"].ledger.streams == streams


def test_a_depth_of_zero_holds_nothing() -> None:
    door = Door(depth_s=0.0)
    door.fill("r0", 50.0)
    assert door.goes(small()) == "r0"


def test_a_depth_that_becomes_zero_lets_all_go() -> None:
    door = Door()
    door.fill("r0", 50.0)
    held = [door.waits(small()) for _ in range(10)]
    door.admission.rules = Rules(depth_s=0.0)
    sent = [waiting for now in (1.0, 2.0, 3.0) for waiting in door.tick(now)]
    assert sent == held


def test_a_busy_home_is_waited_for_beside_one_that_is_free() -> None:
    door = Door(2)
    request = door.at_home(1, "r0")
    door.fill("r0", 2.0)
    waiting = door.waits(request, 1.0)
    assert waiting.place == Place("r0", "m")
    assert waiting.work_s == pytest.approx(0.05, abs=0.01)


def test_a_newcomer_does_not_pass_those_who_wait_for_the_same_room() -> None:
    door = Door()
    door.fill("r0")
    first = door.waits(small(), 0.0)
    door.empty("r0", 0.5)
    later = door.waits(small(), 0.6)
    assert door.tick(0.7) == [first, later]


def test_a_newcomer_passes_those_who_wait_for_another_replica() -> None:
    door = Door(2)
    request = door.at_home(1, "r0")
    for replica in ("r0", "r1"):
        door.fill(replica)
    assert door.waits(request).place.replica == "r0"
    door.empty("r1", 0.5)
    assert door.goes(small(), 0.6) == "r1"


def test_those_who_prefer_a_busy_replica_wait_for_that_one_and_let_others_pass() -> None:
    """What they share stands on r0: they do not keep r1, where there is room, from those who do not care."""
    door = Door(2)
    opening = ("system", "y" * int(8.0 * RATE * 4))
    door.lived(chat(opening, ("user", "first")), "r0")
    for replica in ("r0", "r1"):
        door.fill(replica)
    picky = [door.waits(_session_at(door, chat(opening, session=f"s{number}"), "r0"), 1.0) for number in range(8)]
    other = door.waits(small(), 1.1)
    door.empty("r1", 2.0)
    assert other in door.tick(2.0)
    assert {waiting.place.replica for waiting in picky} == {"r0"}


def test_one_that_is_tried_where_there_is_room_and_prefers_another_waits_for_that_one() -> None:
    """Else the same few would be tried again and again, and nobody behind them."""
    door = Door(2)
    opening = ("system", "y" * int(8.0 * RATE * 4))
    door.lived(chat(opening, ("user", "first")), "r0")
    door.fleet["r1"].recent.add(8.0, 0.0)
    for replica in ("r0", "r1"):
        door.fill(replica)
    held = [door.waits(chat(opening, ("user", f"{number}")), number / 100) for number in range(8)]
    assert {waiting.place for waiting in held} == {Place(None, "m")}, "new chats, and nobody has room"
    other = door.waits(small(tokens=2_000), 0.5)
    door.empty("r1", 1.0)
    sent = [waiting for step in range(5) for waiting in door.tick(1.0 + step / 50)]
    assert sent == [other]
    assert {waiting.place for waiting in held} == {Place("r0", "m")}


# The price of what waits


def test_those_who_wait_for_a_home_make_it_dear() -> None:
    """Else a hot replica looks as busy as its depth, and all its sessions wait for it beside an idle one."""
    door = Door(2)
    turns = [door.at_home(number, "r0", 1.0) for number in range(60)]
    door.fill("r0", 1.5)
    found = [door.ask(request, 10.0 + at / 100) for at, request in enumerate(turns)]
    moved = [one for one in found if isinstance(one, Ticket)]
    assert moved
    assert {(ticket.decision.replica, ticket.decision.reason) for ticket in moved} == {("r1", "spilled")}
    places = [one.place.replica for one in found if isinstance(one, Waiting)]
    assert places[:12] == ["r0"] * 12, "as many wait for their home as wait less than it costs to move: 2 x (1 + 5) s"
    assert "r1" in places[12:20], "and then some wait for the other one, of which each keeps it busy for 3 s"


def test_what_goes_later_makes_nothing_dear() -> None:
    """Long work that waits is passed by a short turn: it is no reason to leave."""
    door = Door(2)
    long = [door.at_home(number, "r0", 1.0) for number in range(3)]
    short = door.at_home(9, "r0", 0.05)
    door.fill("r0", 1.5)
    for request in long:
        door.waits(request, 0.0)
    assert door.waits(short, 1.0).place.replica == "r0"


def test_batch_that_waits_makes_nothing_dear_for_interactive() -> None:
    door = Door(2)
    turns = [door.at_home(number, "r0", 1.0) for number in range(26)]
    door.fill("r0", 1.5)
    for request in turns:
        door.ask(request._replace(batch=True), 0.0)
    assert door.went["r1"], "batch itself has begun to leave"
    assert door.waits(door.at_home(99, "r0", 1.0), 1.0).place.replica == "r0"


def test_nothing_of_that_is_left_behind() -> None:
    door = Door(2)
    turns = [door.at_home(number, "r0", 1.0) for number in range(9)]
    for replica in ("r0", "r1"):
        door.fill(replica)
    for request in turns:
        door.waits(request)
    assert [replica.priced_queue_s(6.0, 9.0) - replica.queue_s(6.0) for replica in door.fleet] == [0.0, 0.0]


def test_one_whose_turn_is_next_does_not_move_for_those_behind_it() -> None:
    door = Door(2)
    turns = [door.at_home(number, "r0", 1.0) for number in range(50)]
    door.fill("r0", 1.5)
    first = door.waits(turns[0], 1.0)
    for request in turns[1:]:
        door.ask(request, 2.0)
    for now in range(3, 9):
        door.reconsider(float(now))
    assert first.place.replica == "r0"


# Who is sent


def test_a_first_byte_lets_the_next_one_go() -> None:
    door = Door()
    door.fill("r0", 1.25)
    one, other = door.waits(small(tokens=2_000), 0.0), door.waits(small(tokens=2_000), 0.1)
    assert door.first_byte("r0", 0.5) == [one]
    assert door.first_byte("r0", 0.6) == [other]
    assert door.first_byte("r0", 0.7) == []


def test_room_that_opens_without_an_event_is_found_by_the_next_tick() -> None:
    """Another router's requests are done there: no first byte comes here."""
    door = Door()
    replica = door.fleet["r0"]
    replica.peer_load = replica.peer_load._replace(uncached_tokens=16_000, pending=1)
    waiting = door.waits(small())
    assert door.tick(0.02) == []
    replica.peer_load = replica.peer_load._replace(uncached_tokens=0, pending=0)
    assert door.tick(0.04) == [waiting]


def test_interactive_passes_batch_and_a_tenant_passes_a_flood() -> None:
    door = Door()
    door.fill("r0")
    batch = [door.waits(small(batch=True), 0.0, tenant=1) for _ in range(5)]
    flood = [door.waits(small(), 0.1, tenant=1) for _ in range(50)]
    urgent = door.waits(small(), 0.2, tenant=2)
    door.empty("r0", 0.3)
    sent = door.tick(0.3)
    assert sent[:2] == [flood[0], batch[0]], "nobody has had anything before"
    sent += [waiting for step in range(20) for waiting in door.tick(0.3 + step / 50)]
    assert urgent in sent
    assert sent.index(urgent) < 10
    assert len(set(sent) & set(batch)) <= 2


def test_a_replica_that_pushes_back_is_sent_nothing_for_a_moment() -> None:
    door = Door()
    door.fleet["r0"].health.pushed_back(0.0, None)
    waiting = door.waits(small(), 0.0)
    assert door.tick(0.5) == []
    assert door.tick(1.01) == [waiting]


def test_a_slow_reader_of_many_is_not_sent_more_than_its_room() -> None:
    door = Door()
    door.fill("r0")
    for _ in range(40):
        door.waits(small(tokens=2_000))
    door.empty("r0", 0.5)
    for step in range(20):
        door.tick(0.5 + step / 50)
    assert 1.0 < door.fleet["r0"].queue_s(1.0) <= 1.5


# Replicas that go away


def test_those_who_wait_for_a_replica_that_drains_go_elsewhere() -> None:
    door = Door(2)
    door.fill("r0", 2.0)
    held = [door.waits(door.at_home(number, "r0"), number / 100) for number in range(3)]
    door.fleet["r0"].health.drain(1.0)
    sent = door.tick(1.0)
    assert held[0] in sent
    assert {waiting.place.replica for waiting in held if waiting not in sent} == {"r1"}
    assert all(ticket.decision.reason == "drained" for ticket in door.sent["r1"])


def test_those_who_wait_for_a_replica_that_is_ejected_or_removed_or_asleep_go_elsewhere() -> None:
    for end in (_eject, _remove, _put_to_sleep, _unload):
        door = Door(2)
        door.fill("r0", 2.0)
        held = [door.waits(door.at_home(number, "r0", 0.01)) for number in range(2 * MOVES)]
        end(door.fleet)
        sent = [waiting for step in range(5) for waiting in door.tick(1.0 + step / 50)]
        assert sent, end
        assert not any(waiting.place.replica == "r0" for waiting in held if waiting not in sent), end


def test_where_all_are_down_those_who_wait_wait_on_until_one_is_back() -> None:
    door = Door(2)
    for replica in ("r0", "r1"):
        door.fill(replica)
    held = [door.waits(small()) for _ in range(3)]
    for name in ("r0", "r1"):
        door.fleet[name].health.failed(OutcomeKind.REFUSED, 1.0)
        door.empty(name, 1.0)
    assert [*door.tick(1.2), *door.reconsider(1.2)] == []
    door.fleet["r1"].health.succeeded(1.3)
    assert door.tick(1.3) == held


def test_a_trial_of_an_ejected_replica_is_one_request() -> None:
    door = Door()
    door.fill("r0")
    held = [door.waits(small()) for _ in range(5)]
    health = door.fleet["r0"].health
    health.failed(OutcomeKind.RESET, 1.0)
    door.empty("r0", 1.0)
    assert door.tick(1.1) == []
    assert door.tick(health.retry_at_s) == held[:1]
    assert health.state is State.EJECTED


def test_a_fleet_that_becomes_empty_loses_nobody() -> None:
    door = Door(2)
    for replica in ("r0", "r1"):
        door.fill(replica)
    held = [door.waits(small()) for _ in range(3)]
    for replica in ("r0", "r1"):
        door.fleet.remove(replica)
    assert [*door.tick(1.0), *door.reconsider(1.0), *door.admission.unserved()] == []
    assert door.admission.predicted_wait_s(held[0], 1.0) >= 0.0
    door.fleet.add("r9")
    assert door.tick(2.0) == held


def test_a_model_that_nobody_serves_any_more_is_not_waited_for() -> None:
    door = Door(2)
    for replica in door.fleet:
        door.fill(replica.replica_id)
        replica.models = frozenset({"m", "other"})
    lost, kept = door.waits(small("other")), door.waits(small("m"))
    assert door.admission.unserved() == []
    for replica in door.fleet:
        replica.models = frozenset({"m"})
    assert [*door.tick(1.0), *door.reconsider(1.0)] == []
    assert door.admission.unserved() == [lost]
    door.admission.leave(lost)
    assert list(door.admission.queue) == [kept]
    with pytest.raises(UnknownModelError):
        door.ask(small("other"))
    door.fleet.forward_unknown = True
    door.waits(small("other"))
    assert door.admission.unserved() == []


def test_each_of_those_who_wait_is_reconsidered_in_its_turn() -> None:
    door = Door(2)
    door.fill("r0", 2.0)
    door.fill("r1", 2.0)
    held = [door.waits(_session_at(door, chat(BIG, session=f"s{number}"), "r0")) for number in range(3 * RETRIES)]
    for waiting in held:
        _session_at(door, waiting.request, "r1")
    for round_ in range(3):
        assert sum(waiting.place.replica == "r1" for waiting in held) == round_ * RETRIES
        door.reconsider(1.0 + round_)
    assert {waiting.place.replica for waiting in held} == {"r1"}


# Who is turned away


def test_the_predicted_wait_grows_with_what_is_ahead_and_is_shared_by_replicas() -> None:
    waits: dict[int, list[float]] = {}
    for replicas in (1, 4):
        door = Door(replicas)
        for replica in door.fleet:
            door.fill(replica.replica_id, 2.0)
        held = [door.waits(small(tokens=2_000)) for _ in range(40)]
        waits[replicas] = [door.admission.predicted_wait_s(waiting, 0.0) for waiting in held]
        assert waits[replicas] == sorted(waits[replicas])
        assert waits[replicas][0] == pytest.approx(1.0), "what the replica has beyond the depth"
    assert waits[1][-1] == pytest.approx(1.0 + 39 * 0.25)
    assert waits[4][-1] == pytest.approx(1.0 + 39 * 0.25 / 4)


def test_one_that_waits_for_its_home_has_all_of_its_homes_line_ahead() -> None:
    door = Door(4)
    for replica in door.fleet:
        door.fill(replica.replica_id, 1.25)
    held = [door.waits(door.at_home(number, "r0", 0.25)) for number in range(9)]
    elsewhere = door.waits(door.at_home(99, "r1", 0.25))
    assert door.admission.predicted_wait_s(held[-1], 0.0) == pytest.approx(0.25 + sum(w.work_s for w in held[:-1]))
    assert door.admission.predicted_wait_s(elsewhere, 0.0) == pytest.approx(0.25)


def test_one_that_would_wait_too_long_is_turned_away_and_leaves_no_trace() -> None:
    door = Door(max_wait_s=5.0)
    door.fill("r0", 1.25)
    held = []
    with pytest.raises(QueueFullError) as full:
        while True:
            held.append(door.waits(small(tokens=2_000)))
    assert full.value.wait_s > 5.0
    assert len(door.admission.queue) == len(held) == 20
    assert door.admission.queue.bytes == 20 * 8_000


def test_short_work_is_let_in_where_long_work_is_turned_away() -> None:
    door = Door(max_wait_s=5.0)
    door.fill("r0", 1.25)
    for _ in range(20):
        door.waits(small(tokens=2_000))
    with pytest.raises(QueueFullError):
        door.ask(small(tokens=2_000))
    door.waits(small(tokens=100))


def test_a_tenant_that_floods_does_not_have_another_turned_away() -> None:
    door = Door(max_wait_s=5.0)
    door.fill("r0", 1.25)
    with pytest.raises(QueueFullError):
        while True:
            door.waits(small(tokens=2_000), tenant=1)
    newcomer = door.waits(small(tokens=2_000), tenant=2)
    assert door.admission.predicted_wait_s(newcomer, 0.0) < 1.0


def test_a_flood_of_batch_does_not_have_interactive_turned_away() -> None:
    door = Door(max_wait_s=5.0)
    door.fill("r0", 1.25)
    with pytest.raises(QueueFullError):
        while True:
            door.waits(small(tokens=2_000, batch=True))
    door.waits(small(tokens=2_000))


@pytest.mark.parametrize("rule", [{"max_requests": 10}, {"max_bytes": 16_000}])
def test_a_full_queue_turns_newcomers_away(rule: dict[str, int]) -> None:
    door = Door(**rule)
    door.fill("r0")
    for _ in range(10):
        door.waits(small())
    with pytest.raises(QueueFullError) as full:
        door.ask(small())
    assert 0.0 < full.value.wait_s < 60.0
    assert len(door.admission.queue) == 10
    assert door.admission.overdue(1.0) == []


@pytest.mark.parametrize("rule", [{"max_requests": 10}, {"max_bytes": 16_000}])
def test_a_full_queue_makes_room_for_those_who_have_less_in_it(rule: dict[str, int]) -> None:
    door = Door(**rule)
    door.fill("r0")
    flood = [door.waits(small(), now=number / 100, tenant=1) for number in range(10)]
    batch = door.admission.queue.count(Priority.BATCH)
    newcomer = door.waits(small(), 1.0, tenant=2)
    assert batch == 0
    assert len(door.admission.queue) == 10
    assert door.admission.queue.bytes == 16_000
    assert door.admission.overdue(1.0) == [flood[-1]], "the last of them is told to go"
    assert door.admission.overdue(1.0) == [], "once"
    assert newcomer in list(door.admission.queue)


def test_a_body_larger_than_the_queue_is_turned_away_alone() -> None:
    door = Door(max_bytes=1_000)
    door.fill("r0")
    with pytest.raises(QueueFullError):
        door.ask(small(tokens=2_000))
    assert (len(door.admission.queue), door.admission.queue.bytes) == (0, 0)


def test_those_who_have_waited_as_long_as_allowed_are_overdue_in_order() -> None:
    door = Door(max_wait_s=5.0)
    door.fill("r0")
    held = [door.waits(small(), float(second)) for second in range(4)]
    assert door.admission.overdue(4.9) == []
    assert door.admission.overdue(6.5) == held[:2]


def test_one_that_leaves_is_gone() -> None:
    door = Door()
    door.fill("r0")
    waiting = door.waits(small())
    for _ in range(2):
        door.admission.leave(waiting)
    door.empty("r0", 1.0)
    assert door.tick(1.0) == []
    assert (len(door.admission.queue), door.admission.queue.bytes) == (0, 0)


# Homes, and how they end


def _session_at(door: Door, request: RoutingRequest, home: ReplicaId) -> RoutingRequest:
    """Note that a session is at home somewhere, whatever stands where."""
    assert request.session is not None
    door.fleet.index.homes.put(request.session, home)
    return request


def _eject(fleet: Fleet) -> None:
    fleet["r0"].health.failed(OutcomeKind.DIED, 1.0)


def _remove(fleet: Fleet) -> None:
    fleet.remove("r0", 1.0)


def _put_to_sleep(fleet: Fleet) -> None:
    fleet.observe_engine("r0", EngineReport(asleep=True), 1.0)


def _unload(fleet: Fleet) -> None:
    fleet["r0"].models = frozenset({"another"})
