"""What is written down of a prompt, and what is asked of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.landmarks import (
    MAX_ASKED,
    RECENT_BLOCKS,
    STRIDE_BLOCKS,
    Landmark,
    Question,
    asked,
    landmarks,
    question,
    rest_hash,
)
from router.core.policy import round_robin
from router.core.prompt import BLOCK_BYTES, open_hash
from router.core.types import Prompt, RoutingRequest
from tests.core.prompts import SYSTEM, TOOLS, Said, asks, book, completion, said, text
from tests.core.worlds import answered, chat, fleet_of, prompt

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
    assert asks(fleet, keyless) == Question(None, [], [7, 8], must_be_found=True)
    fleet.index.homes.put(7, "r0")
    assert asks(fleet, keyless).homes == [8]
    fleet.index.homes.put(8, "r0")
    assert question(fleet, keyless) is None
    assert question(fleet, keyless._replace(session=None, stored=None)) is None


def test_a_policy_that_does_not_look_at_residency_asks_for_homes_only() -> None:
    fleet = fleet_of(2, policy=round_robin)
    assert question(fleet, chat(*said(3))) is None
    assert asks(fleet, chat(*said(3), session="s")).positions == []
