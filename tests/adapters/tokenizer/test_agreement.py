"""When tokens are trusted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.adapters.tokenizer.agreement import ENOUGH, KEPT, TRIED_EVERY, Agreement


def after(*answers: bool) -> Agreement:
    agreement = Agreement()
    for agrees in answers:
        agreement.answered(agrees)
    return agreement


def test_a_few_answers_prove_nothing() -> None:
    assert after(*[False] * (ENOUGH - 1)).trusted
    assert not after(*[False] * ENOUGH).trusted


def test_half_is_enough() -> None:
    assert after(*[True, False] * 4).trusted
    assert not after(*[True, False] * 4, False).trusted


def test_what_is_not_trusted_is_tried_now_and_then_and_regains_trust() -> None:
    agreement = after(*[False] * KEPT)
    assert [agreement.wanted() for _ in range(2 * TRIED_EVERY)].count(True) == 2
    changes = [agreement.answered(True) for _ in range(KEPT)]
    assert changes.count(True) == 1
    assert changes.index(True) == KEPT // 2 - 1
    assert agreement.trusted
    assert agreement.wanted()


@given(st.lists(st.booleans(), max_size=100))
def test_the_last_answers_decide(answers: list[bool]) -> None:
    agreement, last = after(*answers), answers[-KEPT:]
    assert agreement.trusted == (len(last) < ENOUGH or 2 * sum(last) >= len(last))
    assert (agreement.agreed, agreement.disagreed) == (sum(answers), len(answers) - sum(answers))
