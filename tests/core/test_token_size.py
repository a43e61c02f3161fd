import pytest

from router.core.token_size import TokenSize


def test_bytes_per_token_follow_the_reports_within_bounds() -> None:
    size = TokenSize()
    assert size.bytes_per_token == 4.0
    for _ in range(200):
        size.observe(3_000, 1_000)
    assert size.bytes_per_token == pytest.approx(3.0, rel=0.01)
    for _ in range(200):
        size.observe(10, 1_000_000)
    assert size.bytes_per_token == 0.25


def test_reuse_of_answers_is_learnt_both_ways() -> None:
    size = TokenSize()
    for _ in range(30):
        size.observe_answer(-3.0)
    assert size.answer_reuse_ratio == pytest.approx(0.0, abs=0.01)
    for _ in range(30):
        size.observe_answer(7.0)
    assert size.answer_reuse_ratio == pytest.approx(1.0, abs=0.01)


def test_the_length_of_answers_is_learnt() -> None:
    size = TokenSize()
    for _ in range(400):
        size.observe_length(1_000)
    assert size.answer_tokens == pytest.approx(1_000, rel=0.01)
