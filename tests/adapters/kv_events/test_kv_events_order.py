from hypothesis import given
from hypothesis import strategies as st

from router.adapters.kv_events.order import Order, Place


def test_a_gap_and_its_replay() -> None:
    order = Order()
    assert order.place(0) is Place.NEXT
    order.took(0, b"0")
    assert order.place(3) is Place.MISSED
    assert order.is_last(0, b"0")
    assert not order.is_last(0, b"of another process")
    for number in (1, 2, 3, 4):
        order.took(number, b"%d" % number)
    assert order.place(4) is Place.KNOWN, "it was replayed before it came"
    assert order.place(5) is Place.NEXT


def test_numbers_that_go_back_are_another_engines() -> None:
    order = Order()
    order.place(7)
    order.took(7, b"7")
    assert order.place(0) is Place.RESTARTED
    order.begin_anew()
    order.took(0, b"0")
    assert order.place(1) is Place.NEXT


@given(st.lists(st.integers(0, 30), unique=True).map(sorted))
def test_one_subscription_is_never_taken_for_a_restart(numbers: list[int]) -> None:
    order = Order()
    for number in numbers:
        place = order.place(number)
        assert place is (Place.NEXT if number == order.next else Place.MISSED)
        order.took(number, b"")
