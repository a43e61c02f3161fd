"""What an answer of other routers teaches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fleet import Fleet
from router.core.landmarks import Found, Holder, Landmark, Question, Recollection, landmarks, question, recollect
from router.core.shortlist import LARGE
from router.core.types import EngineReport, Reason, RoutingRequest
from tests.core.prompts import SYSTEM, asks, book, completion, said
from tests.core.worlds import answered, chat, fleet_of, prompt


def holders(*replicas: str, start_s: float | None = 1.0) -> list[Holder]:
    return [Holder(replica, start_s) for replica in replicas]


def tell(fleet: Fleet, request: RoutingRequest, *found: Found, homes: list[tuple[int, str]] | None = None) -> bool:
    asking = question(fleet, request) or Question(request.prompt, [], [])
    return recollect(fleet, asking, Recollection(list(found), homes or []), 5.0)


def matched(fleet: Fleet, request: RoutingRequest) -> dict[str, int]:
    assert request.prompt is not None
    return {replica.replica_id: replica.mirror.match(request.prompt.hashes) for replica in fleet}


def test_each_replica_counts_with_its_longest_prefix() -> None:
    fleet, request = fleet_of(4), chat(*said(4))
    first, second, third = (len(prompt(*said(turns)).hashes) for turns in (1, 2, 3))
    told = [
        Found(first, holders("r2", "r0", "r1"), 50, 10),
        Found(third, holders("r0"), 300, 10),
        Found(second, holders("r1", "r0"), 150, 10),
    ]
    assert tell(fleet, request, *told)
    assert matched(fleet, request) == {"r0": third, "r1": second, "r2": first, "r3": 0}
    assert all(replica.mirror.held_bytes == 0 for replica in fleet)


def test_holders_are_learnt_in_the_order_of_the_answer_in_every_process() -> None:
    """A large fleet looks at them in the order in which they came to hold something, and prices them in that order."""
    fleet, request = fleet_of(LARGE + 2), chat(*said(1))
    named = ["r40", "r5", "r31", "r7", "r2", "r19", "r23", "r11"]
    assert tell(fleet, request, Found(len(prompt(SYSTEM).hashes), holders(*named, "r5")))
    assert [score.replica for score in fleet.explain(request, 6.0).scores][: len(named)] == named


def test_the_next_turn_of_a_chat_that_was_found_is_warm() -> None:
    fleet, request = fleet_of(4), chat(*said(3))
    end = len(prompt(*said(2)).hashes)
    opening = len(prompt(SYSTEM).hashes)
    assert tell(fleet, request, Found(end, holders("r2"), 640, 48), Found(opening, holders("r0", "r1", "r2", "r3")))
    decision = fleet.explain(request, 6.0)
    assert (decision.replica, decision.reason, decision.home) == ("r2", Reason.WARM, "r2")
    assert decision.matched_tokens == 640
    assert question(fleet, request) is None


def test_an_opening_that_was_found_is_shared_and_no_history() -> None:
    fleet, request = fleet_of(2), chat(*said(1))
    assert tell(fleet, request, Found(len(prompt(SYSTEM).hashes), holders("r0")))
    decision = fleet.explain(request, 6.0)
    assert decision.home is None
    assert len(fleet.index.turns) == 0
    assert matched(fleet, request)["r0"] == len(prompt(SYSTEM).hashes)


def test_a_text_that_was_found_goes_on_where_it_ended() -> None:
    fleet, content = fleet_of(3), book(12, b"rest")
    request = completion(content + b" and an answer" * 80)
    assert tell(fleet, request, Found(12, holders("r1"), 1_600, 40, 4))
    decision = fleet.explain(request, 6.0)
    assert (decision.replica, decision.reason) == ("r1", Reason.WARM)
    assert fleet.explain(completion(book(12, b"other")), 6.0).home is None, "it goes on behind its rest alone"


def test_a_texts_end_counts_though_more_of_another_text_lies_behind_it() -> None:
    fleet, content = fleet_of(2), book(12, b"rest")
    request = completion(content + b" and an answer" * 200)
    assert request.prompt is not None
    assert len(request.prompt.hashes) >= 16
    assert tell(fleet, request, Found(16, holders("r1")), Found(12, holders("r1"), 1_600, 40, 4))
    assert matched(fleet, request)["r1"] == 16
    decision = fleet.explain(request, 6.0)
    assert (decision.reason, decision.home) == (Reason.WARM, "r1")


@pytest.mark.parametrize(
    ("told_s", "here_s", "counts"),
    [
        (1.0, 1.0, True),
        (1.9, 1.0, True),
        (2.1, 1.0, False),
        (None, 1.0, True),
        (900.0, None, True),
        (900.0, 1.0, False),
    ],
)
def test_what_an_engine_held_before_it_restarted_does_not_count(
    told_s: float | None, here_s: float | None, counts: bool
) -> None:
    fleet, request = Fleet(), chat(*said(2))
    fleet.add("r0")
    fleet.observe_engine("r0", EngineReport(start_time_s=here_s))
    end = len(prompt(*said(1)).hashes)
    assert tell(fleet, request, Found(end, holders("r0", start_s=told_s), 100, 10)) is counts
    assert matched(fleet, request) == {"r0": end if counts else 0}
    assert (len(fleet.index.turns) > 0) is counts


def test_a_replica_that_restarted_still_counts_with_what_it_has_computed_since() -> None:
    fleet, request = fleet_of(1), chat(*said(3))
    first, second = (len(prompt(*said(turns)).hashes) for turns in (1, 2))
    old, new = holders("r0", start_s=900.0), holders("r0")
    assert tell(fleet, request, Found(second, old, 300, 10), Found(first, new, 100, 10))
    assert matched(fleet, request) == {"r0": first}


def test_replicas_of_other_fleets_are_passed_over() -> None:
    fleet, request = fleet_of(2), chat(*said(2))
    end = len(prompt(*said(1)).hashes)
    assert not tell(fleet, request, Found(end, holders("gone", "r9"), 100, 10))
    assert (matched(fleet, request), len(fleet.index.turns)) == ({"r0": 0, "r1": 0}, 0)
    assert tell(fleet, request, Found(end, holders("gone", "r1"), 100, 10))
    assert matched(fleet, request) == {"r0": 0, "r1": end}


def test_homes_are_learnt_and_those_known_here_stay() -> None:
    fleet = fleet_of(3)
    keyless = RoutingRequest("m", "chat", None, 100, session=7, session_is_explicit=True, stored=8)
    asking = asks(fleet, keyless)
    fleet.index.homes.put(7, "r0")  # while the answer was on its way
    assert recollect(fleet, asking, Recollection([], [(7, "r1"), (8, "r2")]), 5.0)
    assert (fleet.index.homes.get(7), fleet.index.homes.get(8)) == ("r0", "r2")
    assert not recollect(fleet, asking, Recollection([], [(7, "r1")]), 5.0)


def test_a_home_that_has_left_the_fleet_is_known_as_the_one_to_be_moved_from() -> None:
    """The compare-and-set that moves the session names its home as it stands; without it the session stays there."""
    fleet = fleet_of(2)
    keyless = RoutingRequest("m", "chat", None, 100, session=7, session_is_explicit=True)
    recollect(fleet, asks(fleet, keyless), Recollection([], [(7, "gone")]), 5.0)
    assert fleet.index.homes.get(7) == "gone"
    decision = fleet.explain(keyless, 6.0)
    assert (decision.reason, decision.home) == (Reason.FAILOVER, "gone")


def test_an_empty_answer_teaches_nothing() -> None:
    fleet, request = fleet_of(2), chat(*said(3), session="s")
    assert not tell(fleet, request)
    assert fleet.index.size_bytes == 0


@given(data=st.data())
def test_what_one_fleet_writes_another_finds(data: st.DataObject) -> None:
    """Any chats through one router; then each one's next turn through another that has nothing but the landmarks."""
    one, other = fleet_of(3), fleet_of(3)
    written: dict[int, tuple[Landmark, str]] = {}
    homes: dict[str, str] = {}
    lengths = {name: data.draw(st.integers(1, 4), label=name) for name in "abcd"}
    for turns in range(1, 5):
        for name in (name for name, length in lengths.items() if length >= turns):
            ticket = answered(one, chat(*said(turns, name)), float(turns))
            homes[name] = ticket.decision.replica
            assert ticket.request.prompt is not None
            for landmark in landmarks(ticket.request.prompt, 100 * turns, 10):
                written[landmark.block] = landmark, ticket.decision.replica
    for name, length in lengths.items():
        request = chat(*said(length + 1, name))
        asking = asks(other, request)
        assert asking.prompt is not None
        found = [
            Found(at, holders(replica), landmark.prompt_tokens, landmark.answer_tokens)
            for at in asking.positions
            for landmark, replica in [written.get(asking.prompt.hashes[at - 1], (Landmark(0), ""))]
            if replica
        ]
        assert recollect(other, asking, Recollection(found, []), 9.0)
        decision = other.explain(request, 9.0)
        assert (decision.replica, decision.reason) == (homes[name], Reason.WARM)
        assert decision.matched_tokens >= 100 * length // 16 * 16
