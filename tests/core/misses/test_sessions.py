"""How a session is known again, and what is not taken for one."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest

from router.core.misses.links import CERTAIN_BYTES
from router.core.misses.sessions import MOST_PARTS, RECENT, Sessions
from router.core.misses.types import Cause
from router.core.types import RoutingRequest
from tests.core.misses.turns import SYSTEM, TOOLS, Memory, Said, answer, asks, chat, completes, question, tokens_of


def test_a_chat_that_goes_on_is_one_session() -> None:
    memory = Memory()
    seen = [memory.serve(asks(chat(turns))) for turns in range(1, 8)]
    assert len({one.session_id for one in seen}) == 1
    assert [one.origin.number for one in seen] == list(range(1, 8))
    assert [one.origin.change for one in seen] == [None] * 7
    assert [one.origin.tokens for one in seen[1:]] == [tokens_of(asks(chat(turns))) for turns in range(1, 7)]
    assert [one.idle_s for one in seen] == [None] + [0.0] * 6
    memory.now += 33.0
    assert memory.look(asks(chat(8))).idle_s == 33.0


def test_the_parts_of_a_continuation_are_hashed_as_if_it_were_new() -> None:
    memory, fresh = Memory(), Memory()
    for turns in range(1, 5):
        assert memory.serve(asks(chat(turns))).parts == fresh.look(asks(chat(turns))).parts


def test_ids_are_opaque_and_depend_on_the_key() -> None:
    request = asks(chat(1))
    ids = {Sessions(key).recognise(asks(chat(1)), Memory().ends, 0.0).session_id for key in range(20)}  # type: ignore[union-attr]
    assert len(ids) == 20
    assert all(len(one) == 14 and one.startswith("s-") for one in ids)
    assert request.prompt is not None
    assert f"{request.prompt.hashes[-1] >> 16:012x}" not in {one[2:] for one in ids}


def test_recognition_alone_changes_nothing_and_lets_go_of_the_text() -> None:
    memory = Memory()
    memory.serve(asks(chat(2)))
    size, request = memory.sessions.size_bytes, asks(chat(3))
    first = memory.look(request)
    assert request.prompt is not None
    assert request.prompt.parts == []
    assert memory.look(asks(chat(3))) == first
    assert memory.sessions.size_bytes == size


def test_a_request_that_has_ended_before_it_is_looked_at_does_not_go_on_from_itself() -> None:
    memory, request = Memory(), asks(chat(2))
    assert request.prompt is not None
    alone = memory.look(asks(chat(2)))
    memory.ends.put(request.prompt, 500, 20)
    late = memory.sessions.recognise(request, memory.ends, 0.0, ended=True)
    assert late == alone
    assert (alone.origin.number, alone.origin.tokens) == (1, 0)
    # Whose messages had been answered before, by another router, says the same again.
    again = memory.look(asks(chat(2)))
    assert (again.origin.number, again.origin.tokens) == (2, 500)


def test_an_end_before_its_own_is_found_though_it_has_ended() -> None:
    memory, before = Memory(), asks(chat(1))
    assert before.prompt is not None
    memory.ends.put(before.prompt, 400, 20)
    request = asks(chat(2))
    assert request.prompt is not None
    alone = memory.look(asks(chat(2)))
    memory.ends.put(request.prompt, 500, 20)
    assert memory.sessions.recognise(request, memory.ends, 0.0, ended=True) == alone
    assert alone.origin.tokens == 400


def test_some_requests_have_no_session() -> None:
    memory = Memory()
    for request in (
        RoutingRequest("m", "chat", None, 10),
        asks(chat(2), shape="embeddings"),
        asks([("previous", "resp_1"), *chat(2)], shape="responses"),
        asks([("user", "Yes.")] * (MOST_PARTS + 1)),
    ):
        assert memory.sessions.recognise(request, memory.ends, 0.0) is None
        assert request.prompt is None or request.prompt.parts == []


def test_agents_that_answer_with_calls_alone_are_followed() -> None:
    memory = Memory()
    said: Said = [TOOLS, SYSTEM, question(0)]
    numbers = []
    for step in range(5):
        seen = memory.serve(asks(said))
        numbers.append((seen.origin.number, seen.origin.change))
        said = [*said, ("call", f'[{{"name": "look", "id": {step}}}]'), ("tool", f"found {step}"), ("tool", "more")]
    assert numbers == [(number, None) for number in range(1, 6)]


# Branches


def test_an_edited_last_message_is_the_same_session() -> None:
    memory = Memory()
    seen = [memory.serve(asks(chat(turns))) for turns in range(1, 4)]
    edited = memory.serve(asks([*chat(3)[:-1], question(70)]))
    assert (edited.session_id, edited.origin.number) == (seen[0].session_id, 3)
    assert edited.origin.change is None
    assert edited.origin.tokens == tokens_of(asks(chat(2))), "what it goes on from is the turn before that"
    after = memory.serve(asks([*chat(3)[:-1], question(70), answer(70), question(71)]))
    assert (after.session_id, after.origin.number, after.origin.change) == (seen[0].session_id, 4, None)


def test_asking_again_is_the_same_turn() -> None:
    memory = Memory()
    memory.serve(asks(chat(1)))
    first = memory.serve(asks(chat(2)))
    again = memory.serve(asks(chat(2)))
    assert (again.session_id, again.origin.number, again.parts) == (first.session_id, 2, first.parts)
    assert memory.look(asks(chat(3))).origin.number == 3


def test_a_branch_from_an_earlier_turn_is_a_session_of_its_own_and_leaves_the_other_as_it_was() -> None:
    memory = Memory()
    seen = [memory.serve(asks(chat(turns))) for turns in range(1, 5)]
    branch = [*chat(2), answer(90), question(91)]
    other = memory.serve(asks(branch))
    assert other.session_id != seen[0].session_id
    assert (other.origin.number, other.origin.change) == (3, None)
    assert other.origin.tokens == tokens_of(asks(chat(2)))
    assert memory.serve(asks(chat(5))).session_id == seen[0].session_id
    on = memory.serve(asks([*branch, answer(92), question(93)]))
    assert (on.session_id, on.origin.number, on.origin.change) == (other.session_id, 4, None)


def test_the_same_first_prompt_of_somebody_else_does_not_disturb_a_session_that_has_gone_on() -> None:
    memory = Memory()
    mine = [memory.serve(asks(chat(turns))) for turns in range(1, 4)]
    theirs = memory.serve(asks(chat(1)))
    assert theirs.session_id != mine[0].session_id
    assert theirs.origin.number == 1
    assert memory.serve(asks(chat(4))).session_id == mine[0].session_id


# Changes that are found by what was kept


@pytest.mark.parametrize(
    "opening", [[("system", "Quite somebody else, and curt with that. " * 15)], [TOOLS, SYSTEM], []]
)
def test_a_changed_opening_does_not_hide_a_session(opening: Said) -> None:
    memory = Memory()
    before = memory.serve(asks(chat(3)))
    seen = memory.serve(asks(chat(4, opening)))
    assert (seen.session_id, seen.origin.number) == (before.session_id, 2)
    assert seen.origin.change is not None
    assert seen.origin.change.kept_ratio == 0.0
    assert memory.serve(asks(chat(5, opening))).origin.change is None


def test_another_scope_does_not_hide_a_session() -> None:
    memory = Memory()
    memory.serve(asks(chat(2)))
    salted = memory.serve(asks(chat(3), salt="other"))
    assert salted.origin.change is not None
    assert salted.origin.change.cause is Cause.SALT_CHANGED
    moved = memory.serve(asks(chat(4), model="other"))
    assert moved.origin.change is not None
    assert moved.origin.change.cause is Cause.MODEL_CHANGED
    assert moved.session_id == salted.session_id


def test_a_short_last_message_names_a_session_together_with_the_one_before_it() -> None:
    memory = Memory()
    said: Said = [*chat(2), answer(1), ("user", "Yes.")]
    before = memory.serve(asks(said))
    changed: Said = [("system", "Another one. " * 40), *said[1:], answer(2), question(3)]
    assert memory.look(asks(changed)).session_id == before.session_id
    elsewhere: Said = [*chat(2, start=40), answer(40), ("user", "Yes."), answer(2), question(3)]
    assert memory.look(asks(elsewhere)).session_id != before.session_id


@pytest.mark.parametrize("length", [CERTAIN_BYTES - 1, CERTAIN_BYTES])
def test_a_first_question_names_a_session_only_if_it_is_long_enough(length: int) -> None:
    memory = Memory()
    asked = ("user", "q" * length)
    memory.serve(asks([SYSTEM, asked]))
    changed = memory.look(asks([("system", "Another one. " * 40), asked, answer(0), question(1)]))
    assert changed.origin.number == (2 if length == CERTAIN_BYTES else 1)


def test_sessions_that_share_examples_or_a_greeting_are_strangers() -> None:
    memory = Memory()
    examples: Said = [SYSTEM, question(90), answer(90), question(91), answer(91)]
    seen = [memory.serve(asks([*examples, question(number)])) for number in range(5)]
    assert len({one.session_id for one in seen}) == 5
    assert [one.origin.number for one in seen] == [1] * 5
    other: Said = [("system", "Another tenant. " * 40), *examples[1:], question(7)]
    assert memory.look(asks(other)).origin.number == 1


def test_the_same_question_behind_another_system_prompt_is_a_stranger_until_it_goes_on() -> None:
    memory = Memory()
    memory.serve(asks([("system", "The office of Alice. " * 40), question(1)]))
    bob = memory.serve(asks([("system", "The warehouse, run by Bob. " * 40), question(1)]))
    assert (bob.origin.number, bob.origin.before) == (1, None)
    on = memory.serve(asks([("system", "The warehouse, run by Bob. " * 40), question(1), answer(1), question(2)]))
    assert (on.session_id, on.origin.change) == (bob.session_id, None)


# Hints


def test_a_session_header_finds_what_is_too_short_to_be_found() -> None:
    memory = Memory()
    before = memory.serve(asks([SYSTEM, ("user", "Hi")], session="s-1"))
    changed: Said = [("system", "Another one. " * 40), ("user", "Hi"), answer(0), question(1)]
    seen = memory.look(asks(changed, session="s-1"))
    assert (seen.session_id, seen.origin.number) == (before.session_id, 2)
    assert seen.origin.change is not None
    assert seen.origin.change.cause is Cause.SYSTEM_CHANGED
    assert memory.look(asks(changed, session="s-2")).session_id != before.session_id
    assert memory.look(asks(changed)).session_id != before.session_id


def test_one_header_for_many_conversations_does_not_make_them_one() -> None:
    memory = Memory()
    one, other = chat(2), chat(2, start=50)
    seen = [memory.serve(asks(said, session="a-user")) for said in (one, other)]
    assert seen[0].session_id != seen[1].session_id
    on = memory.serve(asks(chat(3), session="a-user"))
    assert (on.session_id, on.origin.change) == (seen[0].session_id, None)


# Texts


def test_a_text_that_goes_on_is_one_session() -> None:
    memory = Memory()
    text, seen = "The log of the harbour. " * 60, []
    for turn in range(5):
        seen.append(memory.serve(completes(text)))
        text += f" And then, in turn {turn}, " + "the wind rose. " * 20
    assert len({one.session_id for one in seen}) == 1
    assert [one.origin.number for one in seen] == [1, 2, 3, 4, 5]
    assert [one.origin.before is None for one in seen] == [True] + [False] * 4
    assert [one.origin.change for one in seen] == [None] * 5


def test_short_questions_behind_one_long_example_are_sessions_of_their_own() -> None:
    memory = Memory()
    example = "The log of the harbour. " * 60
    seen = [
        memory.serve(completes(f"{example} Question {number}: what is {number} + {number}?")) for number in range(9)
    ]
    assert len({one.session_id for one in seen}) == 9
    assert [one.origin.number for one in seen] == [1] * 9
    again = memory.serve(completes(f"{example} Question 3: what is 3 + 3?"))
    assert (again.session_id, again.origin.number) == (seen[3].session_id, 1)


def test_texts_that_part_are_two_sessions() -> None:
    memory = Memory()
    text = "The log of the harbour. " * 60
    first = memory.serve(completes(text))
    one = memory.serve(completes(text + "The wind rose. " * 30))
    other = memory.serve(completes(text + "The wind fell. " * 30))
    assert one.session_id == first.session_id != other.session_id
    assert (other.origin.number, other.origin.tokens) == (2, tokens_of(completes(text)))


# What other routers have served


def test_a_turn_that_somebody_else_has_served_is_no_first_one() -> None:
    memory = Memory()
    served = asks(chat(3))
    assert served.prompt is not None
    memory.ends.put(served.prompt, 900, 50)
    seen = memory.serve(asks(chat(4)))
    assert (seen.origin.number, seen.origin.tokens, seen.origin.before) == (4, 900, None)
    assert memory.serve(asks(chat(5))).session_id == seen.session_id


def test_a_later_turn_that_somebody_else_has_served_counts() -> None:
    memory = Memory()
    memory.serve(asks(chat(2)))
    between = asks(chat(4))
    assert between.prompt is not None
    memory.ends.put(between.prompt, 1_234, 50)
    seen = memory.look(asks(chat(5)))
    assert (seen.origin.number, seen.origin.tokens, seen.origin.change) == (5, 1_234, None)


# Memory


def test_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    memory = Memory(Sessions(1, limit_bytes=200_000))
    for number in range(400):
        memory.serve(asks(chat(3, start=number * 10)))
        assert memory.sessions.size_bytes <= 200_000
    assert 10 < len(memory.sessions) < 400
    assert memory.look(asks(chat(4, start=3_990))).origin.number == 2
    assert memory.look(asks(chat(4, start=0))).origin.number == 1


def test_a_conversation_that_does_not_fit_is_not_kept() -> None:
    memory = Memory(Sessions(1, limit_bytes=20_000))
    memory.serve(asks(chat(500)))
    assert (len(memory.sessions), memory.sessions.size_bytes <= 20_000) == (0, True)
    assert memory.look(asks(chat(501))).origin.number == 2, "the end of its turn is known all the same"


def test_what_is_remembered_never_takes_more_memory_than_is_counted_for_it() -> None:
    chance, worst = Random(1), 0.0
    requests = [asks(chat(1 + number % 9, start=100 * number)) for number in range(3_000)]
    tracemalloc.start()
    try:
        memory = Memory(Sessions(1))
        for request in requests:
            seen = memory.look(request)
            tokens = chance.randrange(1_000, 100_000)
            memory.sessions.learn(seen, tokens, True, "r0", 0, chance.random())
            del seen
            if len(memory.sessions) > 1_000 and len(memory.sessions) % 50 == 0:
                worst = max(worst, tracemalloc.get_traced_memory()[0] / memory.sessions.size_bytes)
    finally:
        tracemalloc.stop()
    assert 0.5 < worst <= 1.0


def test_a_long_way_back_is_not_looked_for() -> None:
    memory = Memory()
    memory.serve(asks(chat(1)))
    many = chat(RECENT)
    assert memory.look(asks(many)).origin.number == 1
