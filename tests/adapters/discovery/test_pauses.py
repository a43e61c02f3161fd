"""How long to wait before an API server is asked again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.adapters.discovery.kubernetes.watched import FIRST_PAUSE_S, MAX_PAUSE_S, MAX_RETRY_AFTER_S, Pauses
from router.adapters.discovery.trouble import Unreadable


def test_pauses_grow_up_to_a_limit_and_begin_anew_after_a_steady_time() -> None:
    pauses, trouble = Pauses(lambda: 1.0), Unreadable("x")
    assert [pauses.after(0.0, trouble) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert pauses.after(60.0, None) == 0.0
    assert pauses.after(0.0, trouble) == FIRST_PAUSE_S


def test_a_round_that_ends_at_once_is_followed_at_once_only_the_first_time() -> None:
    pauses = Pauses(lambda: 0.0)
    assert [pauses.after(0.0, None) for _ in range(3)] == [0.0, FIRST_PAUSE_S / 2, FIRST_PAUSE_S]


def test_a_server_may_say_how_long_it_wants_to_be_left_alone() -> None:
    assert Pauses().after(0.0, Unreadable("x", retry_after_s=7.0)) == 7.0
    assert Pauses().after(0.0, Unreadable("x", retry_after_s=1e9)) == MAX_RETRY_AFTER_S


ROUNDS = st.tuples(st.floats(0, 100), st.none() | st.builds(Unreadable, st.just("x"), st.floats(0, 1000)))


@given(st.lists(ROUNDS, min_size=1, max_size=30), st.floats(0, 1))
def test_pauses_are_bounded(rounds: list[tuple[float, Unreadable | None]], chance: float) -> None:
    pauses = Pauses(lambda: chance)
    for lasted_s, trouble in rounds:
        pause_s = pauses.after(lasted_s, trouble)
        asked_s = 0.0 if trouble is None else min(MAX_RETRY_AFTER_S, trouble.retry_after_s)
        assert asked_s <= pause_s <= max(asked_s, MAX_PAUSE_S)
        assert pause_s > 0 or trouble is None
