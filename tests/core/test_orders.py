"""Orders: the later one holds, however and in whichever order routers hear of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.orders import (
    KEEP_MS,
    MAX_ORDERS,
    RENEW_MS,
    RENEWED_AGO_MS,
    Kind,
    Listed,
    Order,
    Orders,
    TooManyOrdersError,
)

NOW_MS = 1_760_000_000_000
HERE = Listed("http://gpu-1:8000", models=("m",), weight=2.0, labels=(("zone", "a"),))

orders = st.builds(
    Order,
    st.sampled_from(Kind),
    st.sampled_from(["r-1", "r-2"]),
    st.integers(NOW_MS, NOW_MS + 2),
    st.booleans(),
    st.sampled_from([None, HERE, Listed("http://gpu-2:8000")]),
)


@given(st.lists(orders), st.randoms(use_true_random=False))
def test_all_agree_whatever_way_the_orders_come(given_orders: list[Order], chance: object) -> None:
    one, other = Orders(), Orders()
    one.take(given_orders)
    shuffled = given_orders * 2
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    for order in shuffled:
        other.take([order])
    assert one.all == other.all
    assert not one.take(other.all.values())


@given(orders, st.integers(NOW_MS - 10, NOW_MS + 10), st.booleans())
def test_an_order_given_here_replaces_all_that_is_known_whatever_the_clock_says(
    known: Order, now_ms: int, holds: bool
) -> None:
    here, there = Orders(), Orders()
    for both in (here, there):
        both.take([known])
    here.give(known.kind, known.name, holds, now_ms)
    assert there.take(here.all.values())
    assert there.all[known.about].holds == holds


def test_what_holds() -> None:
    orders = Orders()
    orders.give(Kind.REPLICA, "b", True, NOW_MS, HERE)
    orders.give(Kind.REPLICA, "a", True, NOW_MS, HERE)
    orders.give(Kind.DRAIN, "r-1", True, NOW_MS)
    assert list(orders.listed()) == ["a", "b"]
    assert (orders.drained("r-1"), orders.drained("a")) == (True, False)
    orders.give(Kind.REPLICA, "a", False, NOW_MS)
    orders.give(Kind.DRAIN, "r-1", False, NOW_MS)
    assert orders.listed() == {"b": HERE}
    assert not orders.drained("r-1")
    assert len(orders) == 3, "what has ended is remembered, lest a router that was away brings it back"


def test_an_ended_order_is_not_brought_back_by_who_has_not_heard_of_the_end() -> None:
    here, away = Orders(), Orders()
    here.give(Kind.REPLICA, "a", True, NOW_MS, HERE)
    away.take(here.all.values())
    here.give(Kind.REPLICA, "a", False, NOW_MS + 5)
    here.tidy(NOW_MS + KEEP_MS, lambda _: False)
    assert not here.take(away.all.values())
    assert away.take(here.all.values())
    assert away.listed() == {}


def test_old_orders_go_when_they_are_of_no_effect_and_are_renewed_when_they_are() -> None:
    orders = Orders()
    orders.give(Kind.REPLICA, "put", True, NOW_MS, HERE)
    orders.give(Kind.REPLICA, "ended", False, NOW_MS)
    orders.give(Kind.DRAIN, "present", True, NOW_MS)
    orders.give(Kind.DRAIN, "absent", True, NOW_MS)
    before = orders.all
    orders.tidy(NOW_MS + RENEW_MS, ["present"].__contains__)
    assert orders.all == before
    late_ms = NOW_MS + KEEP_MS + 1
    orders.tidy(late_ms, ["present"].__contains__)
    assert {name: order.stamp_ms for (_, name), order in orders.all.items()} == {
        "put": late_ms - RENEWED_AGO_MS,
        "present": late_ms - RENEWED_AGO_MS,
    }


def test_a_renewed_order_gives_way_to_one_that_was_given_meanwhile() -> None:
    here, there = Orders(), Orders()
    here.give(Kind.DRAIN, "r-1", True, NOW_MS)
    there.take(here.all.values())
    later_ms = NOW_MS + 2 * RENEW_MS
    there.give(Kind.DRAIN, "r-1", False, later_ms - 100)
    here.tidy(later_ms, ["r-1"].__contains__)
    assert here.take(there.all.values())
    assert not here.drained("r-1")


def test_there_is_a_limit_which_leaves_what_is_known_open_to_change() -> None:
    orders = Orders()
    for number in range(MAX_ORDERS):
        orders.give(Kind.DRAIN, f"r-{number}", True, NOW_MS)
    with pytest.raises(TooManyOrdersError):
        orders.give(Kind.DRAIN, "one-more", True, NOW_MS)
    orders.give(Kind.DRAIN, "r-0", False, NOW_MS)
    assert not orders.drained("r-0")


@pytest.mark.parametrize(
    ("order", "sound"),
    [
        (Order(Kind.REPLICA, "a", NOW_MS, True, HERE), True),
        (Order(Kind.REPLICA, "a", NOW_MS, False), True),
        (Order(Kind.DRAIN, "r-1", NOW_MS, True), True),
        (Order(Kind.REPLICA, "a", NOW_MS, True), False),
        (Order(Kind.REPLICA, "a", NOW_MS, False, HERE), False),
        (Order(Kind.DRAIN, "r-1", NOW_MS, True, HERE), False),
        (Order(Kind.DRAIN, "r-1", -1, True), False),
        (Order(Kind.DRAIN, "r-1", 1 << 53, True), False),
    ],
)
def test_what_can_not_be_an_order_is_told(order: Order, sound: bool) -> None:
    assert order.is_sound is sound
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=Order) == order
