"""Whatever conversations do, in whatever order: what is recognised of them, and what is counted as lost."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.misses.account import LEAST_LOST_BLOCKS, account
from router.core.misses.sessions import Sessions
from router.core.misses.types import Cause
from router.core.types import Outcome, OutcomeKind, Usage
from tests.core.misses.turns import SYSTEM, TOOLS, Memory, Said, asks, tokens_of
from tests.core.worlds import fleet_of

ROLES = st.sampled_from(["user", "assistant", "tool", "call", "system", "pirate"])
WORDS = st.sampled_from(["", "Yes.", "12:30", "No, on the contrary. ", "The tide turns, and the ferry waits. " * 3])
MESSAGES = st.lists(st.tuples(ROLES, WORDS), max_size=6)
ENDED = st.tuples(st.just("user"), st.integers(0, 10**6).map(lambda number: f"And what of ship {number}, pray?"))


@st.composite
def talks(draw: st.DrawFn) -> list[Said]:
    """A conversation's prompts, each of which begins as the one before it."""
    said: Said = [*draw(st.sampled_from([[SYSTEM], [TOOLS, SYSTEM]])), draw(ENDED)]
    prompts = [said]
    for _ in range(draw(st.integers(1, 5))):
        said = [*said, ("assistant", draw(WORDS)), *draw(MESSAGES), draw(ENDED)]
        prompts.append(said)
    return prompts


@settings(max_examples=50)
@given(st.lists(talks(), min_size=1, max_size=4, unique_by=lambda prompts: prompts[0][-1]), st.randoms())
def test_to_go_on_is_never_a_change_however_conversations_take_turns(several: list[list[Said]], chance: Any) -> None:
    memory, waiting = Memory(), [list(prompts) for prompts in several]
    sessions: dict[int, set[str]] = {}
    while any(waiting):
        talk = chance.choice([number for number, prompts in enumerate(waiting) if prompts])
        seen = memory.serve(asks(waiting[talk].pop(0)))
        sessions.setdefault(talk, set()).add(seen.session_id)
        assert seen.origin.change is None
        assert seen.origin.number == len(several[talk]) - len(waiting[talk])
    assert all(len(ids) == 1 for ids in sessions.values())
    assert len(set().union(*sessions.values())) == len(several)


@given(MESSAGES, MESSAGES, st.sampled_from([[SYSTEM], [TOOLS, SYSTEM], [("developer", SYSTEM[1]), SYSTEM]]))
def test_conversations_that_share_only_the_operators_words_are_never_one(one: Said, other: Said, opening: Said) -> None:
    mine = [*opening, *((role, f"mine {words}") for role, words in one if role != "system"), ("user", "Mine it is.")]
    theirs = [*opening, *((role, f"theirs {words}") for role, words in other if role != "system"), ("user", "Not so.")]
    memory = Memory()
    first = memory.serve(asks(mine, session="shared header"))
    second = memory.serve(asks(theirs, session="shared header"))
    assert first.session_id != second.session_id
    assert (second.origin.number, second.origin.before) == (1, None)


@settings(max_examples=40)
@given(st.lists(talks(), min_size=1, max_size=12), st.integers(2_000, 60_000))
def test_memory_stays_within_its_bound_and_its_count_is_right(several: list[list[Said]], limit_bytes: int) -> None:
    memory = Memory(Sessions(9, limit_bytes))
    for prompts in several:
        for said in prompts:
            memory.serve(asks(said))
            sessions = memory.sessions
            assert sessions.size_bytes <= limit_bytes
            assert sessions._turns_bytes == sum(turn.size_bytes for turn in sessions._turns.values())


@settings(max_examples=60)
@given(
    talks(),
    st.lists(st.sampled_from(["as it is", "cut", "edit", "stamp", "drop the head"]), min_size=6, max_size=6),
    st.lists(st.floats(0.0, 1.2), min_size=6, max_size=6),
    st.booleans(),
)
def test_what_is_lost_was_there_before_and_has_a_cause(
    prompts: list[Said], deeds: list[str], found: list[float], reported: bool
) -> None:
    fleet, memory, now = fleet_of(3), Memory(), 0.0
    for said, deed, ratio in zip(prompts, deeds, found, strict=False):
        request = asks(done(said, deed))
        now += 5.0
        ticket = fleet.route(request, now)
        seen = memory.sessions.recognise(request, fleet.index.turns, now)
        assert seen is not None
        assert request.prompt is not None
        tokens = tokens_of(request)
        usage = Usage(tokens, min(tokens - 1, int(tokens * ratio)) // 16 * 16) if reported else Usage()
        turn = account(fleet, seen, request.prompt, ticket.decision, usage)
        assert turn.history_tokens % 16 == 0
        assert turn.history_tokens >= 0
        if turn.lost_tokens:
            assert turn.lost_tokens + turn.cached_tokens == turn.history_tokens
            assert turn.lost_tokens >= LEAST_LOST_BLOCKS * 16
            assert turn.cause not in (None, Cause.FIRST_SEEN)
            assert turn.lost_tokens + turn.cached_tokens < (usage.prompt_tokens or ticket.decision.prompt_tokens)
        else:
            assert turn.cause in (None, Cause.FIRST_SEEN)
        assert turn.change is None or 0 <= turn.change.kept_tokens <= max(seen.origin.tokens, tokens)
        fleet.first_byte(ticket, now)
        fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), now + 1)
        memory.sessions.learn(seen, tokens, reported, ticket.decision.replica, 0, now + 1)


def done(said: Said, deed: str) -> Said:
    """What a client makes of its history before it sends it."""
    first = next(place for place, (role, _) in enumerate(said) if role == "user")
    opening, rest = said[:first], said[first:]
    if deed == "cut" and len(rest) > 4:
        return [*opening, *rest[:2], *rest[4:]]
    if deed == "edit":
        return [*opening, ("user", "Something else was said, and at some length, by all. "), *rest[1:]]
    if deed == "stamp":
        return [*opening[:-1], ("system", f"It is 12:{len(said):02d}. {SYSTEM[1]}"), *rest]
    return [*opening, *rest[2:]] if deed == "drop the head" and len(rest) > 4 else said
