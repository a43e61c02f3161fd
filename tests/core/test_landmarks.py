"""What is written down of a prompt, what is asked of it, and what an answer teaches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fleet import Fleet
from router.core.landmarks import (
    MAX_ASKED,
    RECENT_BLOCKS,
    STRIDE_BLOCKS,
    Found,
    Holder,
    Landmark,
    Question,
    Recollection,
    asked,
    landmarks,
    question,
    recollect,
    rest_hash,
)
from router.core.policy import round_robin
from router.core.prompt import BLOCK_BYTES, PromptBuilder, open_hash
from router.core.types import EngineReport, Prompt, Reason, RoutingRequest
from tests.core.worlds import SCOPE, answered, chat, fleet_of, prompt

Said = list[tuple[str, str]]
SYSTEM = ("system", "You are helpful. " * 100)
TOOLS = ("tools", '[{"name": "look_up"}]' * 100)


def said(turns: int, name: str = "a", opening: Said | None = None) -> Said:
    messages = [SYSTEM] if opening is None else list(opening)
    messages.append(("user", f"{name} asks " * 90))
    for number in range(1, turns):
        messages += [("assistant", f"answer {number} to {name} " * 40), ("user", f"{name} asks on, {number} " * 40)]
    return messages


def text(content: bytes) -> Prompt:
    builder = PromptBuilder(SCOPE)
    builder.add_open(b"text", content)
    built = builder.build()
    assert built is not None
    return built


def completion(content: bytes) -> RoutingRequest:
    return RoutingRequest("m", "completions", text(content), len(content))


def book(blocks: int, more: bytes = b"") -> bytes:
    """A text of whole blocks, each another one, and what follows them."""
    return b"".join(b"%07d " % number * (BLOCK_BYTES // 8) for number in range(blocks)) + more


# Written


def test_a_first_turn_writes_its_end_and_what_others_share() -> None:
    first = prompt(TOOLS, SYSTEM, ("user", "hello " * 200))
    end, shared = landmarks(first, 700, 30)
    assert end == Landmark(first.hashes[-1], 700, 30)
    assert shared == Landmark(prompt(TOOLS, SYSTEM).hashes[-1])


def test_a_system_prompt_in_a_field_of_its_own_is_shared_too() -> None:
    """Messages API: system first, then developer's and template's bytes may follow."""
    first = prompt(("system", "x" * 2_000), ("developer", "y" * 600), ("user", "hello " * 200))
    assert landmarks(first, 1, 1)[1].block == first.hashes[first.opening_blocks - 1]
    assert first.opening_blocks == 6


def test_a_first_turn_without_anything_to_share_writes_its_end_alone() -> None:
    first = prompt(*said(1, opening=[]))
    assert landmarks(first, 5, 6) == [Landmark(first.hashes[-1], 5, 6)]


def test_a_prompt_of_the_operator_alone_writes_its_end_alone() -> None:
    only = prompt(SYSTEM)
    assert landmarks(only, 5, 6) == [Landmark(only.hashes[-1], 5, 6)]


def test_later_turns_write_their_end_alone() -> None:
    for turns in range(2, 6):
        later = prompt(*said(turns))
        assert landmarks(later, turns, 6) == [Landmark(later.hashes[-1], turns, 6)]


def test_a_text_writes_its_very_end_and_its_last_stride() -> None:
    content = book(21, b"and so on")
    prompted = text(content)
    end, stride = landmarks(prompted, 3_000, 40)
    assert end == Landmark(prompted.hashes[-1], 3_000, 40, 9, open_hash(prompted.hashes[-1], b"and so on"))
    assert stride == Landmark(prompted.hashes[2 * STRIDE_BLOCKS - 1])


@pytest.mark.parametrize("blocks", [1, STRIDE_BLOCKS - 1, STRIDE_BLOCKS, 2 * STRIDE_BLOCKS])
def test_a_text_shorter_than_a_stride_or_ending_with_one_writes_its_end_alone(blocks: int) -> None:
    prompted = text(book(blocks, b"rest"))
    assert [landmark.block for landmark in landmarks(prompted, 1, 1)] == [prompted.hashes[-1]]


# Asked


def test_a_prompt_is_asked_for_at_its_end_its_answers_and_its_opening() -> None:
    asking = prompt(*said(4))
    ends = [len(prompt(*said(turns)).hashes) for turns in range(1, 5)]
    assert asked(asking) == sorted([*ends, len(prompt(SYSTEM).hashes)], reverse=True)


def test_only_the_latest_answers_are_asked_for() -> None:
    asking = prompt(*said(40))
    assert len(asked(asking)) == MAX_ASKED + 2
    assert set(asking.answers_at[-MAX_ASKED:]) < set(asked(asking))


def test_every_answer_between_tool_results_is_asked_for() -> None:
    turns: list[Said] = [said(1)]
    for number in range(5):
        turns.append([*turns[-1], ("assistant", f"call {number} " * 60), ("tool", f"result {number} " * 80)])
    for before, after in zip(turns, turns[1:], strict=False):
        assert len(prompt(*before).hashes) in asked(prompt(*after))


def test_a_text_is_asked_for_block_by_block_then_in_strides() -> None:
    positions = asked(text(book(300)))
    assert positions[: RECENT_BLOCKS + 1] == list(range(300, 300 - RECENT_BLOCKS - 1, -1))
    assert positions[RECENT_BLOCKS + 1 :] == list(range(280, 296 - MAX_ASKED * STRIDE_BLOCKS, -STRIDE_BLOCKS))


def test_nothing_is_asked_for_before_a_texts_beginning() -> None:
    assert asked(text(book(5))) == [5, 4, 3, 2, 1]


messages = st.tuples(st.sampled_from(["user", "tool"]), st.integers(1, 1_500))
turns_of_a_chat = st.lists(st.tuples(st.integers(1, 1_500), messages), max_size=20)


@given(
    opening=st.lists(st.tuples(st.sampled_from(["tools", "system", "developer"]), st.integers(1, 2_000)), max_size=3),
    first=st.integers(512, 2_000),
    history=turns_of_a_chat,
    answer=st.integers(0, 1_500),
    then=st.lists(messages, max_size=3),
)
def test_all_that_is_written_of_a_chat_is_asked_for_in_its_next_turn(
    opening: list[tuple[str, int]],
    first: int,
    history: list[tuple[int, tuple[str, int]]],
    answer: int,
    then: list[tuple[str, int]],
) -> None:
    before: Said = [(role, "o" * size) for role, size in opening] + [("user", "u" * first)]
    for number, (said_bytes, (role, size)) in enumerate(history):
        before += [("assistant", f"{number}" * said_bytes), (role, "x" * size)]
    after = [*before, ("assistant", "n" * answer), *((role, "t" * size) for role, size in then)]
    check_found_again(prompt(*before), prompt(*after))


@given(length=st.integers(BLOCK_BYTES, 200 * BLOCK_BYTES), more=st.integers(0, RECENT_BLOCKS * BLOCK_BYTES))
def test_all_that_is_written_of_a_text_is_asked_for_where_it_goes_on_for_16_blocks(length: int, more: int) -> None:
    content = book(250)
    before, after = text(content[:length]), text(content[: length + more])
    check_found_again(before, after)
    assert rest_hash(after, len(before.hashes), before.open_bytes or 0) == landmarks(before, 1, 1)[0].rest


def check_found_again(before: Prompt, after: Prompt) -> None:
    known = {after.hashes[position - 1] for position in asked(after)}
    assert {landmark.block for landmark in landmarks(before, 100, 10)} <= known


def test_a_rest_is_hashed_where_the_text_is_long_enough() -> None:
    prompted = text(book(3, b"0123456789"))
    leaf = prompted.hashes[-1]
    assert rest_hash(prompted, 3, 4) == open_hash(leaf, b"0123")
    assert rest_hash(prompted, 3, 10) == open_hash(leaf, b"0123456789")
    assert rest_hash(prompted, 3, 11) is None
    assert rest_hash(prompted, 3, -1) is None
    assert rest_hash(prompt(*said(1)), 3, 4) is None


# Questions


def asks(fleet: Fleet, request: RoutingRequest) -> Question:
    asking = question(fleet, request)
    assert asking is not None
    return asking


def test_a_chat_that_nobody_here_knows_is_asked_for() -> None:
    fleet, request = fleet_of(2), chat(*said(3), session="s")
    asking = asks(fleet, request)
    assert request.prompt is not None
    assert (asking.prompt, asking.positions) == (request.prompt, asked(request.prompt))
    assert asking.homes == [request.session]


def test_nothing_is_asked_of_the_next_turn_of_a_chat_that_is_known() -> None:
    fleet = fleet_of(2)
    for turns in range(1, 5):
        request = chat(*said(turns), session="s")
        answered(fleet, request, float(turns))
        assert question(fleet, request) is None or turns == 1
        assert question(fleet, chat(*said(turns + 1), session="s")) is None


def test_a_chat_whose_last_turn_another_router_served_is_asked_for() -> None:
    fleet = fleet_of(2)
    answered(fleet, chat(*said(2)), 1.0)
    assert question(fleet, chat(*said(3))) is None
    assert len(prompt(*said(3)).hashes) in asks(fleet, chat(*said(4))).positions


def test_a_new_chat_is_not_asked_for_where_its_opening_is_known() -> None:
    fleet = fleet_of(2)
    assert question(fleet, chat(*said(1, "a"))) is not None
    answered(fleet, chat(*said(1, "a")), 1.0)
    assert question(fleet, chat(*said(1, "b"))) is None
    assert question(fleet, chat(*said(1, "b", opening=[TOOLS]))) is not None


def test_the_opening_is_asked_for_again_when_its_last_holder_has_lost_it() -> None:
    fleet = fleet_of(1)
    answered(fleet, chat(*said(1)), 1.0)
    fleet.forget_residency("r0")
    assert question(fleet, chat(*said(1, "b"))) is not None


def test_a_text_is_not_asked_for_behind_an_end_that_is_known() -> None:
    fleet = fleet_of(2)
    content = book(12, b"rest")
    assert asks(fleet, completion(content)).positions == asked(text(content))
    answered(fleet, completion(content), 1.0)
    assert question(fleet, completion(content + b" and an answer" * 80)) is None
    assert question(fleet, completion(book(12, b"other"))) is not None


def test_only_homes_are_asked_for_where_there_is_no_prompt() -> None:
    fleet = fleet_of(2)
    keyless = RoutingRequest("m", "chat", None, 100, session=7, session_is_explicit=True, stored=8)
    assert asks(fleet, keyless) == Question(None, [], [7, 8])
    fleet.index.homes.put(7, "r0")
    assert asks(fleet, keyless).homes == [8]
    fleet.index.homes.put(8, "r0")
    assert question(fleet, keyless) is None
    assert question(fleet, keyless._replace(session=None, stored=None)) is None


def test_a_policy_that_does_not_look_at_residency_asks_for_homes_only() -> None:
    fleet = fleet_of(2, policy=round_robin)
    assert question(fleet, chat(*said(3))) is None
    assert asks(fleet, chat(*said(3), session="s")).positions == []


# Answers


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
