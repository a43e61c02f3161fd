import pytest

from router.core.latency import MIN_SAMPLE_TOKENS, PrefillRate, TokenSize


def test_the_rate_moves_from_the_prior_to_what_is_seen() -> None:
    rate = PrefillRate(8_000)
    assert rate.tokens_per_s == 8_000
    for _ in range(100):
        rate.observe(2_000, 2.0)
    assert rate.tokens_per_s == pytest.approx(1_000, rel=0.01)


def test_short_prefills_and_impossible_times_teach_nothing() -> None:
    rate = PrefillRate(8_000)
    rate.observe(MIN_SAMPLE_TOKENS - 1, 60.0)
    rate.observe(5_000, 0.0)
    assert rate.tokens_per_s == 8_000


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


def test_answers_in_one_piece_tell_what_is_reached_at_the_least() -> None:
    rate = PrefillRate(8_000.0)
    rate.at_least(100, 10.0)
    assert rate.least_tokens_per_s == 10.0
    rate.at_least(100, 0.001)
    rate.at_least(100, 0.0)
    assert rate.least_tokens_per_s == pytest.approx(100_000.0)
    for _ in range(1_000):
        rate.at_least(100, 10.0)
    assert rate.least_tokens_per_s == 10.0, "one lucky answer is not believed for ever"
    assert (rate.tokens_per_s, rate.measured) == (8_000.0, False), "replicas are not compared by it"
