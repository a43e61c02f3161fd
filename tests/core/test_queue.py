"""Whose turn it is: short work first with ageing, fair between tenants, 10 to 1 between priorities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from math import ceil

import pytest

from router.core.lines import LEAST_WORK_S
from router.core.queue import TURN_WORKS, Queue
from router.core.types import ReplicaId, RoutingRequest
from router.core.waiting import DUE_S, WEIGHTS, Owner, Place, Priority, Waiting

INTERACTIVE, BATCH = Priority.INTERACTIVE, Priority.BATCH
ANY = Place(None, "m")
HERE, THERE = Place("here", "m"), Place("there", "m")


class Line:
    """A queue, and requests that are put into it."""

    def __init__(self) -> None:
        self.queue = Queue()
        self._numbers: Iterator[int] = count(1)

    def put(
        self,
        work_s: float,
        since_s: float = 0.0,
        *,
        tenant: int = 0,
        priority: Priority = INTERACTIVE,
        place: Place = ANY,
        body_bytes: int = 100,
    ) -> Waiting:
        request = RoutingRequest(place.model, "chat", None, body_bytes)
        waiting = Waiting(next(self._numbers), request, Owner(priority, tenant), since_s)
        self.queue.put(waiting, place, work_s)
        return waiting

    def send(self, *places: Place, to: ReplicaId = "here") -> Waiting | None:
        """Send whose turn it is to a replica."""
        waiting = self.queue.take_next(to, places or (ANY, HERE))
        if waiting is not None:
            self.queue.leave(waiting, to)
        return waiting

    def send_all(self, limit: int = 10_000) -> list[Waiting]:
        sent: list[Waiting] = []
        while len(sent) < limit and (waiting := self.send()) is not None:
            sent.append(waiting)
        return sent

    def share(
        self, of: Callable[[Waiting], object], times: int, refill: Callable[[Waiting], object]
    ) -> Counter[object]:
        """Work sent by each, while whoever is served has another one waiting at once."""
        work: Counter[object] = Counter()
        for _ in range(times):
            waiting = self.send()
            assert waiting is not None
            work[of(waiting)] += waiting.work_s  # type: ignore[assignment]
            refill(waiting)
        return work


def assert_equal(sent: list[Waiting]) -> None:
    """Check that two tenants whose requests are equally long had as much, but for a turn."""
    counts = Counter(waiting.owner.tenant for waiting in sent)
    assert abs(counts[1] - counts[2]) <= TURN_WORKS + 1, counts


@pytest.fixture
def line() -> Line:
    return Line()


# Within one tenant


def test_short_work_goes_first_and_equal_work_in_order_of_arrival(line: Line) -> None:
    long, short, later = line.put(5.0), line.put(0.1), line.put(0.1)
    assert line.send_all() == [short, later, long]


def test_waiting_makes_up_for_work(line: Line) -> None:
    long = line.put(5.0, since_s=0.0)
    just_before = line.put(0.5, since_s=4.5 * DUE_S - 0.1)
    just_after = line.put(0.5, since_s=4.5 * DUE_S + 0.1)
    assert line.send_all() == [just_before, long, just_after]


def test_long_work_is_not_passed_for_ever(line: Line) -> None:
    """However many short ones keep coming, a long one has to wait for a time in proportion to its work."""
    long = line.put(6.0)
    now = 0.0
    while True:
        line.put(0.05, since_s=now)
        if line.send() is long:
            break
        now += 0.1
    assert now == pytest.approx((6.0 - 0.05) * DUE_S, abs=0.5)


def test_usual_work_is_due_after_the_same_time_whatever_is_usual() -> None:
    """Chats' work is a thirtieth of coding agents': one rate of ageing would be in order of arrival for the one."""
    for usual_s in (0.1, 4.0):
        line = Line()
        for _ in range(50):
            line.put(usual_s)
        assert line.queue.pace * usual_s == pytest.approx(DUE_S)


def test_usual_work_that_hardly_changes_changes_no_order(line: Line) -> None:
    """Of two equal requests the first one goes first, though the usual work was another when the second one came."""
    line.put(1.0)
    pace = line.queue.pace
    for _ in range(200):
        line.put(1.1)
    assert line.queue.pace == pace
    for _ in range(200):
        line.put(9.0)
    assert line.queue.pace < pace / 2


def test_work_that_changes_changes_the_order(line: Line) -> None:
    one, other = line.put(1.0), line.put(2.0)
    line.queue.put(one, ANY, 3.0)
    assert line.send_all() == [other, one]


# Places


def test_only_those_who_wait_for_a_place_are_taken(line: Line) -> None:
    there, here = line.put(0.1, place=THERE), line.put(9.0, place=HERE)
    assert line.send(HERE, ANY) is here
    assert line.send(HERE, ANY) is None
    assert line.send(THERE, ANY, to="there") is there


def test_one_that_is_put_elsewhere_has_left_its_old_place(line: Line) -> None:
    waiting = line.put(1.0, place=HERE)
    line.queue.put(waiting, THERE, 2.0)
    assert line.queue.places == [THERE]
    assert line.send(HERE) is None
    assert line.send(THERE) is waiting


def test_one_that_was_taken_and_put_back_keeps_its_turn(line: Line) -> None:
    first, second = line.put(1.0), line.put(2.0)
    taken = line.queue.take_next("here", [ANY])
    assert taken is first
    assert line.queue.take_next("here", [ANY]) is second
    for waiting in (second, first):
        line.queue.put(waiting, ANY, waiting.work_s)
    assert line.send_all() == [first, second]


# Between tenants


def test_a_tenant_that_floods_delays_another_by_no_more_than_its_share(line: Line) -> None:
    for _ in range(1_000):
        line.put(0.5, tenant=1)
    other = [line.put(0.5, since_s=100.0, tenant=2) for _ in range(10)]
    sent = line.send_all(limit=20 + 2 * ceil(TURN_WORKS))
    assert [waiting for waiting in sent if waiting.owner.tenant == 2] == other


def test_tenants_share_work_and_not_requests(line: Line) -> None:
    line.put(4.0, tenant=1)
    line.put(0.25, tenant=2)
    work = line.share(lambda one: one.owner.tenant, 1_700, lambda one: line.put(one.work_s, tenant=one.owner.tenant))
    assert work[1] / work[2] == pytest.approx(1.0, abs=0.05)


def test_one_request_at_a_time_gets_no_more_than_its_share(line: Line) -> None:
    """A tenant that asks again only when it is answered leaves the queue each time, and what it has had with it."""
    for _ in range(100):
        line.put(0.1, tenant=1)
    line.put(2.0, tenant=2)
    sent = Counter[int]()
    for _ in range(630):
        waiting = line.send()
        assert waiting is not None
        line.put(waiting.work_s, tenant=waiting.owner.tenant)
        sent[waiting.owner.tenant] += 1
    assert sent[1] == pytest.approx(600, abs=25), "20 of 0.1 s for each one of 2 s"


def test_a_newcomer_does_not_bring_what_it_never_used(line: Line) -> None:
    for _ in range(2_000):
        line.put(1.0, tenant=1)
    line.send_all(limit=1_000)
    for _ in range(100):
        line.put(1.0, since_s=1_000.0, tenant=2)
    assert_equal(line.send_all(limit=100))


def test_what_batch_has_had_is_nothing_to_an_interactive_newcomer(line: Line) -> None:
    """Tenants are compared within their priority: batch tenants have had a tenth of what interactive ones have."""
    for _ in range(1_000):
        line.put(1.0, tenant=1)
        line.put(1.0, tenant=1, priority=BATCH)
    line.send_all(limit=550)
    for _ in range(100):
        line.put(1.0, since_s=550.0, tenant=2)
    sent = line.send_all(limit=110)
    assert_equal([waiting for waiting in sent if waiting.owner.priority is INTERACTIVE])


def test_cached_prompts_count_for_something(line: Line) -> None:
    for _ in range(100):
        line.put(0.0, tenant=1)
        line.put(LEAST_WORK_S, tenant=2)
    assert_equal(line.send_all(limit=100))


def test_shares_are_of_one_replica(line: Line) -> None:
    """What a tenant has had of one replica's work is not held against it where another one is waited for."""
    for _ in range(100):
        line.put(1.0, tenant=1, place=THERE)
    for _ in range(50):
        line.send(THERE, to="there")
    for _ in range(10):
        line.put(1.0, tenant=1, place=HERE)
        line.put(1.0, tenant=2, place=HERE)
    assert_equal(line.send_all(limit=10))


def test_in_a_turn_the_shortest_goes_first_whoever_it_is(line: Line) -> None:
    """Exact turns would send the next tenant's only request, however long, before short ones of others."""
    for tenant in range(10):
        line.put(4.0 if tenant == 9 else 1.0, tenant=tenant)
        line.put(1.0, tenant=tenant)
    sent = line.send_all()
    assert [waiting.work_s for waiting in sent[:10]] == [1.0] * 10
    assert sent[-1].work_s == 4.0


# Between priorities


def test_ten_parts_interactive_one_part_batch(line: Line) -> None:
    line.put(0.5, priority=INTERACTIVE)
    line.put(0.5, priority=BATCH)
    work = line.share(
        lambda one: one.owner.priority, 1_100, lambda one: line.put(one.work_s, priority=one.owner.priority)
    )
    assert work[INTERACTIVE] / work[BATCH] == pytest.approx(WEIGHTS[INTERACTIVE] / WEIGHTS[BATCH], rel=0.02)


def test_batch_never_stands_still(line: Line) -> None:
    batch = line.put(3.0, priority=BATCH)
    for _ in range(10_000):
        line.put(0.05, priority=INTERACTIVE)
        if line.send() is batch:
            return
    pytest.fail("batch was never served")


def test_interactive_goes_first_where_neither_has_had_anything(line: Line) -> None:
    batch, interactive = line.put(0.1, priority=BATCH), line.put(5.0, since_s=50.0)
    assert line.send_all() == [interactive, batch]


def test_alone_batch_has_everything(line: Line) -> None:
    batch = [line.put(1.0, priority=BATCH) for _ in range(5)]
    assert line.send_all() == batch


def test_models_on_replicas_of_their_own_share_no_account() -> None:
    line = Line()
    other = Place(None, "other")
    for _ in range(1_000):
        line.put(1.0, place=other)
    for _ in range(500):
        line.send(other, to="there")
    line.put(1.0, priority=BATCH)
    interactive = line.put(1.0, since_s=500.0)
    assert line.send(ANY) is interactive, "whatever was sent to others for another model"


# Books


def test_leaving_counts_out_once(line: Line) -> None:
    one, other = line.put(1.0, body_bytes=70), line.put(1.0, body_bytes=30)
    for _ in range(2):
        line.queue.leave(one)
        assert (len(line.queue), line.queue.bytes, line.queue.count(INTERACTIVE)) == (1, 30, 1)
    assert line.send() is other
    assert (len(line.queue), line.queue.bytes, line.queue.places) == (0, 0, [])


def test_one_that_leaves_is_not_charged(line: Line) -> None:
    for _ in range(20):
        line.put(1.0, tenant=1)
    gone = [line.put(1.0, tenant=2) for _ in range(10)]
    for waiting in gone:
        line.queue.leave(waiting)
    for _ in range(10):
        line.put(1.0, since_s=1.0, tenant=2)
    assert_equal(line.send_all(limit=10))


# Who is ahead


def everywhere(place: Place) -> float:
    return 1.0


def test_ahead_is_what_has_a_lower_rank(line: Line) -> None:
    line.put(1.0)
    line.put(9.0)
    one = line.put(2.0)
    assert line.queue.ahead_s(one, everywhere) == 1.0


def test_a_flood_of_others_is_ahead_with_its_share_only(line: Line) -> None:
    for _ in range(1_000):
        line.put(1.0, tenant=1)
    newcomer = line.put(2.0, since_s=50.0, tenant=2)
    assert line.queue.ahead_s(newcomer, everywhere) == 2.0, "as much as its own work"
    mine = line.put(2.0, since_s=50.0, tenant=1)
    assert line.queue.ahead_s(mine, everywhere) == 1_002.0


def test_batch_is_ahead_of_interactive_with_a_tenth(line: Line) -> None:
    for _ in range(100):
        line.put(1.0, priority=BATCH)
    interactive = line.put(5.0)
    assert line.queue.ahead_s(interactive, everywhere) == 0.5
    batch = line.put(1.0, priority=BATCH)
    assert line.queue.ahead_s(batch, everywhere) == 105.0


def test_what_waits_elsewhere_counts_as_asked(line: Line) -> None:
    line.put(1.0, place=HERE)
    line.put(2.0, place=THERE)
    line.put(4.0)
    one = line.put(9.0, place=HERE)
    assert line.queue.ahead_s(one, lambda place: {HERE: 1.0, THERE: 0.0, ANY: 0.5}[place]) == 3.0


def test_what_waits_for_each_replica_depends_on_ones_own_work(line: Line) -> None:
    line.put(1.0, place=HERE)
    line.put(3.0, place=HERE)
    line.put(7.0, place=THERE)
    line.put(9.0)
    request = RoutingRequest("m", "chat", None, 100)
    newcomer = Waiting(99, request, Owner(INTERACTIVE, 0), 0.0)
    ahead = line.queue.ahead_by_replica(newcomer)
    assert {replica: [of(own_s) for own_s in (0.5, 2.0, 8.0)] for replica, of in ahead.items()} == {
        "here": [0.0, 1.0, 4.0],
        "there": [0.0, 0.0, 7.0],
    }


# Who has to make room


def test_the_last_one_of_whoever_has_most_makes_room(line: Line) -> None:
    flood = [line.put(1.0, since_s=float(number), tenant=1) for number in range(5)]
    newcomer = line.put(1.0, since_s=9.0, tenant=2)
    assert line.queue.rather_than(newcomer, by_bytes=False) is flood[-1]
    more = line.put(1.0, since_s=9.0, tenant=1)
    assert line.queue.rather_than(more, by_bytes=False) is None, "it has most itself"


def test_batch_makes_room_for_interactive(line: Line) -> None:
    interactive = [line.put(1.0) for _ in range(9)]
    batch = line.put(1.0, priority=BATCH)
    newcomer = line.put(1.0)
    assert line.queue.rather_than(newcomer, by_bytes=False) is None, "ten of one are as much as one of the other"
    another = line.put(1.0, priority=BATCH)
    assert line.queue.rather_than(interactive[0], by_bytes=False) is another
    assert line.queue.rather_than(batch, by_bytes=False) is None


def test_room_in_bytes_is_made_by_bytes(line: Line) -> None:
    large = line.put(1.0, tenant=1, body_bytes=10_000)
    for _ in range(5):
        line.put(1.0, tenant=2)
    newcomer = line.put(1.0, tenant=3)
    assert line.queue.rather_than(newcomer, by_bytes=True) is large
