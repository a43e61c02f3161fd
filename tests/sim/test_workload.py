"""Chats with the distributions of the comparison, and token counts that hold."""

from statistics import median

import pytest

from router.sim.tokenizer import Tokenizer, answer_text
from router.sim.workload import (
    ANSWER_TOKENS,
    DOCUMENT_TOKENS,
    MAX_TURNS,
    SYSTEM_PROMPTS,
    SYSTEM_TOKENS,
    USER_TOKENS,
    ChatSession,
    ChatWorkload,
)

MANY = ChatWorkload(sessions_per_s=4.0, duration_s=1_000.0, seed=5)


@pytest.fixture(scope="module")
def sessions() -> list[ChatSession]:
    return list(MANY.sessions())


def play(session: ChatSession) -> list[dict]:
    """Take all turns of a session and return the last one's messages."""
    turn, messages = session.next_turn(), []
    while turn is not None:
        messages = turn.messages
        turn = session.next_turn(answer_text(turn.number, turn.max_tokens))
    return messages


def test_the_same_numbers_give_the_same_words():
    def words(seed: int) -> list[list[dict]]:
        return [play(session) for session in ChatWorkload(1.0, 20.0, seed).sessions()]

    assert words(1) == words(1)
    assert words(1) != words(2)


def test_arrivals_are_poisson_within_the_duration(sessions: list[ChatSession]):
    starts = [session.starts_s for session in sessions]
    assert starts == sorted(starts)
    assert starts[0] > 0
    assert starts[-1] < 1_000
    assert len(starts) == pytest.approx(4_000, rel=0.05)
    gaps = [later - earlier for earlier, later in zip(starts, starts[1:], strict=False)]
    assert median(gaps) == pytest.approx(0.25 * 0.693, rel=0.1)
    assert len({session.session_id for session in sessions}) == len(sessions)


def test_turns_and_sizes_have_the_stated_medians_and_bounds(sessions: list[ChatSession]):
    counts = [len(session.turns) for session in sessions]
    assert (min(counts), max(counts) <= MAX_TURNS) == (1, True)
    assert sum(counts) / len(counts) == pytest.approx(6.0, rel=0.05)
    turns = [turn for session in sessions for turn in session.turns]
    users = [turn.user[0].tokens for turn in turns]
    answers = [turn.answer_tokens for turn in turns]
    assert median(users) == pytest.approx(120, rel=0.05)
    assert median(answers) == pytest.approx(220, rel=0.05)
    assert (min(users), max(users)) == USER_TOKENS
    assert min(answers) >= ANSWER_TOKENS[0]
    assert max(answers) == ANSWER_TOKENS[1]


def test_a_third_of_first_turns_paste_a_document(sessions: list[ChatSession]):
    documents = [session.turns[0].user[1].tokens for session in sessions if len(session.turns[0].user) == 2]
    assert len(documents) / len(sessions) == pytest.approx(0.3, abs=0.03)
    assert median(documents) == pytest.approx(3_000, rel=0.08)
    assert max(documents) <= DOCUMENT_TOKENS[1]
    assert all(len(turn.user) == 1 for session in sessions for turn in session.turns[1:])


def test_users_think_between_turns_and_not_before_the_first(sessions: list[ChatSession]):
    assert all(session.turns[0].think_s == 0 for session in sessions)
    thinks = [turn.think_s for session in sessions for turn in session.turns[1:]]
    assert median(thinks) == pytest.approx(25, rel=0.05)
    assert sum(think_s > 25 * 2.718 for think_s in thinks) / len(thinks) == pytest.approx(0.159, abs=0.01)


def test_system_prompts_are_shared_by_rank(sessions: list[ChatSession]):
    uses: dict[int, int] = {}
    for session in sessions:
        uses[session.system.seed] = uses.get(session.system.seed, 0) + 1
        assert SYSTEM_TOKENS[0] <= session.system.tokens <= SYSTEM_TOKENS[1]
    assert len(uses) == SYSTEM_PROMPTS
    ranked = sorted(uses.values(), reverse=True)
    assert ranked[0] / len(sessions) == pytest.approx(1 / 3.776, rel=0.1)


def test_token_counts_are_what_the_tokenizer_counts():
    tokenizer = Tokenizer()
    for session in ChatWorkload(1.0, 30.0, 3).sessions():
        turn = session.next_turn()
        while turn is not None:
            assert len(tokenizer.render_chat(turn.messages)) == turn.prompt_tokens
            turn = session.next_turn(answer_text(turn.number, turn.max_tokens))


def test_a_session_grows_by_its_answers():
    session = next(session for session in MANY.sessions() if len(session.turns) == 3)
    first = session.next_turn()
    second = session.next_turn("an answer")
    third = session.next_turn()
    assert first and second and third
    assert [turn.number for turn in (first, second, third)] == [1, 2, 3]
    assert [turn.last for turn in (first, second, third)] == [False, False, True]
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert second.messages[:2] == first.messages
    assert second.messages[2] == {"role": "assistant", "content": "an answer"}
    assert [message["role"] for message in third.messages[4:]] == ["user"]
    assert third.think_s == session.turns[2].think_s > 0
    assert session.next_turn("more") is None
