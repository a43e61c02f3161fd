import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.costs import LEAST_TOKEN_S, DecodeCost, PrefillCost

PROMPTS = [(n, p) for n in (500, 2_000, 8_000, 30_000) for p in (0, 4_000, 40_000)]


def true_s(uncached: float, cached: float, reloaded: float = 0.0, slower: float = 1.0) -> float:
    return slower * (0.015 + uncached / 9_000 + uncached * (cached + uncached / 2) * 4e-9 + reloaded / 90_000)


def prompt(chance: Random) -> tuple[float, float, float]:
    uncached = min(60_000.0, 256 + chance.lognormvariate(6.8, 1.2))
    cached = chance.choice((0.0, chance.random() * 60_000))
    return uncached, cached, chance.choice((0.0, 0.0, chance.random() * cached))


def taught(count: int, noise: float = 0.1, seed: int = 1) -> PrefillCost:
    chance, cost = Random(seed), PrefillCost(3_000.0)
    for _ in range(count):
        uncached, cached, reloaded = prompt(chance)
        took_s = true_s(uncached, cached, reloaded) * chance.lognormvariate(0, noise)
        cost.observe(uncached, cached, took_s, reloaded)
    return cost


def errors(cost: PrefillCost, slower: float = 1.0) -> list[float]:
    return sorted(abs(cost.seconds(n, p) / true_s(n, p, slower=slower) - 1) for n, p in PROMPTS)


def decoded(count: int) -> DecodeCost:
    chance, cost = Random(2), DecodeCost()
    for _ in range(count):
        batch = chance.randint(1, 100)
        context = batch * chance.uniform(500, 20_000)
        cost.observe(batch, context, (0.008 + 0.0001 * batch + 2e-8 * context) * chance.lognormvariate(0, 0.1))
    return cost


def test_before_evidence_a_prefill_costs_its_tokens_at_the_assumed_speed() -> None:
    cost = PrefillCost(8_000.0)
    assert cost.seconds(4_000) == pytest.approx(0.5)
    assert cost.seconds(4_000, 100_000) == pytest.approx(0.5), "attention is not known yet"
    assert cost.seconds(4_000, reloaded=8_000) == pytest.approx(0.6)
    assert cost.tokens_per_s == pytest.approx(8_000.0)
    assert not cost.measured


@pytest.mark.parametrize("seed", range(5))
def test_known_costs_are_found_in_noisy_times(seed: int) -> None:
    cost = taught(600, seed=seed)
    assert cost.measured
    assert errors(cost)[-1] < 0.1
    base_s, token_s, pair_s, reload_s = cost.coefficients
    assert token_s == pytest.approx(1 / 9_000, rel=0.1)
    assert pair_s == pytest.approx(4e-9, rel=0.1)
    assert reload_s == pytest.approx(1 / 90_000, rel=0.3), "the smallest part, and only a third of the prompts have it"
    assert base_s == pytest.approx(0.015, rel=0.3)


def test_one_sample_ten_times_off_moves_a_measured_cost_little() -> None:
    for factor in (10.0, 0.1):
        cost = taught(200)
        before_s = cost.seconds(2_000, 4_000)
        cost.observe(2_000, 4_000, before_s * factor)
        assert cost.seconds(2_000, 4_000) == pytest.approx(before_s, rel=0.08)


def test_outliers_among_the_samples_leave_the_estimate_where_it_is() -> None:
    chance, cost = Random(4), PrefillCost(3_000.0)
    for number in range(600):
        uncached, cached, reloaded = prompt(chance)
        cost.observe(uncached, cached, true_s(uncached, cached, reloaded) * (10 if number % 20 == 19 else 1), reloaded)
    assert errors(cost)[len(PROMPTS) // 2] < 0.1
    assert errors(cost)[-1] < 0.2


def test_a_hiccup_among_the_first_four_is_not_believed() -> None:
    cost = PrefillCost(100.0)
    for took_s in (30.0, 0.25, 0.25, 0.25):
        cost.observe(2_000, 0, took_s)
    assert cost.measured
    assert cost.seconds(2_000) < 0.4


@pytest.mark.parametrize("slower", [3.0, 1 / 3, 10.0])
@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_a_changed_speed_is_followed_within_thirty_samples(slower: float, noise: float) -> None:
    chance, cost = Random(5), taught(300, noise)
    for _ in range(30):
        uncached, cached, reloaded = prompt(chance)
        took_s = true_s(uncached, cached, reloaded, slower) * chance.lognormvariate(0, noise)
        cost.observe(uncached, cached, took_s, reloaded)
    assert errors(cost, slower)[len(PROMPTS) // 2] < (0.1 if noise == 0.1 else 0.2)


def test_a_speed_that_drifts_is_followed_too() -> None:
    chance, cost = Random(6), taught(1_000)
    for _ in range(50):
        uncached, cached, reloaded = prompt(chance)
        cost.observe(uncached, cached, true_s(uncached, cached, reloaded, 1.4), reloaded)
    assert errors(cost, 1.4)[len(PROMPTS) // 2] < 0.1, "none of it was far enough off to be surprising"


def test_a_thousand_equal_prefills_do_not_make_it_forget_the_others() -> None:
    cost = taught(400)
    long_s = cost.seconds(20_000, 40_000)
    for _ in range(5_000):
        cost.observe(1_000, 0, true_s(1_000, 0))
    assert cost.seconds(1_000) == pytest.approx(true_s(1_000, 0), rel=0.02)
    assert cost.seconds(20_000, 40_000) == pytest.approx(long_s, rel=0.1)
    cost.observe(20_000, 40_000, 10 * long_s)
    assert cost.seconds(20_000, 40_000) == pytest.approx(long_s, rel=0.2), "still sure of it after all of them"


def test_short_prefills_teach_the_constant_and_only_when_they_fit() -> None:
    cost = PrefillCost(8_000.0)
    for _ in range(20):
        cost.observe(200, 0, 1.0)
    assert cost.seconds(200) == pytest.approx(0.025), "not before the rest is measured"
    cost = taught(400)
    base_s, token_s, pair_s, reload_s = cost.coefficients
    for _ in range(200):
        cost.observe(100, 0, 0.020 + 100 * token_s)
    assert cost.coefficients[0] == pytest.approx(0.020, rel=0.1)
    for _ in range(200):
        cost.observe(100, 0, 5.0)
    assert cost.coefficients[0] == pytest.approx(0.020, rel=0.1), "it waited for something else"
    assert cost.coefficients[1] == pytest.approx(token_s, rel=0.1)


def test_what_cannot_be_teaches_nothing() -> None:
    cost = taught(50)
    before = cost.state
    for uncached, cached, elapsed_s in ((5_000, 0, 0.0), (5_000, 0, -1.0), (-5_000, 0, 1.0), (5_000, -1, 1.0),
                                        (float("nan"), 0, 1.0), (5_000, float("inf"), 1.0), (5_000, 0, float("nan")),
                                        (5_000, 0, 1e9), (1e200, 0, 1.0)):  # fmt: skip
        cost.observe(uncached, cached, elapsed_s)
    assert cost.state == before


def test_others_costs_are_believed_until_the_own_are_measured() -> None:
    measured, cost = taught(300), PrefillCost(8_000.0)
    cost.assume(measured, 2.0)
    assert cost.seconds(5_000, 20_000, 1_000) == pytest.approx(measured.seconds(5_000, 20_000, 1_000) / 2)
    assert cost.tokens_per_s == pytest.approx(2 * measured.tokens_per_s)
    assert not cost.measured
    own_s = measured.seconds(5_000)
    measured.assume(PrefillCost(1.0))
    assert measured.seconds(5_000) == own_s


def test_the_mean_of_a_fleet_has_the_mean_of_its_speeds() -> None:
    fast, slow = PrefillCost(9_000.0), PrefillCost(3_000.0)
    assert PrefillCost.mean([(fast, 1.0), (slow, 1.0)]).tokens_per_s == pytest.approx(6_000)
    assert PrefillCost.mean([(fast, 3.0), (slow, 1.0)]).tokens_per_s == pytest.approx(3_000)
    learnt = taught(300)
    mean = PrefillCost.mean([(learnt, 1.0)])
    assert mean.seconds(5_000, 20_000, 1_000) == pytest.approx(learnt.seconds(5_000, 20_000, 1_000))
    with pytest.raises(ValueError, match="no costs"):
        PrefillCost.mean([])


def test_answers_in_one_piece_tell_what_is_reached_at_the_least() -> None:
    cost = PrefillCost(8_000.0)
    cost.at_least(100, 10.0)
    assert cost.least_tokens_per_s == 10.0
    cost.at_least(100, 0.001)
    cost.at_least(100, 0.0)
    assert cost.least_tokens_per_s == pytest.approx(100_000.0)
    for _ in range(1_000):
        cost.at_least(100, 10.0)
    assert cost.least_tokens_per_s == 10.0
    assert (cost.tokens_per_s, cost.measured) == (8_000.0, False)


def test_costs_outlast_the_process() -> None:
    cost, again = taught(100), PrefillCost(1.0)
    cost.at_least(100, 0.001)
    again.resume(json.loads(json.dumps(cost.state)))
    assert again.state == cost.state
    assert (again.coefficients, again.tokens_per_s) == (cost.coefficients, cost.tokens_per_s)
    for each in (cost, again):
        each.observe(4_000, 1_000, 0.7)
    assert again.coefficients == cost.coefficients, "it goes on alike"
    unmeasured = PrefillCost(1.0)
    unmeasured.resume(PrefillCost(8_000.0).state)
    assert unmeasured.tokens_per_s == pytest.approx(8_000.0)
    assert not unmeasured.measured


@pytest.mark.parametrize("state", [(), (1.0, 2.0), (*PrefillCost(8_000.0).state, 1.0), DecodeCost().state])
def test_the_state_of_something_else_is_refused(state: tuple[float, ...]) -> None:
    cost = taught(10)
    before = cost.state
    with pytest.raises(ValueError, match="not the state"):
        cost.resume(state)
    assert cost.state == before


def test_decode_steps_are_learnt_from_answers() -> None:
    cost = DecodeCost()
    assert cost.step_s(10) == pytest.approx(0.023)
    assert not cost.measured
    cost = decoded(500)
    for batch, context in ((1, 1_000), (20, 100_000), (80, 800_000)):
        assert cost.step_s(batch, context) == pytest.approx(0.008 + 0.0001 * batch + 2e-8 * context, rel=0.1)
    assert cost.measured
    other, again = DecodeCost(), DecodeCost()
    other.assume(cost)
    again.resume(cost.state)
    assert other.step_s(20, 100_000) == again.step_s(20, 100_000) == cost.step_s(20, 100_000)
    assert again.state == cost.state


FACTS = st.tuples(
    st.floats(-10, 1e12), st.floats(-10, 1e12), st.floats(allow_nan=True), st.sampled_from((0.0, 100.0, 1e5, 1e12))
)
PLAIN = st.tuples(st.floats(1, 60_000), st.floats(0, 100_000), st.floats(0.001, 100), st.floats(0, 50_000))
TOKENS = st.floats(0, 1e12)


@settings(deadline=None)
@given(st.lists(st.one_of(FACTS, PLAIN), max_size=60), st.floats(1e-3, 1e9), TOKENS, TOKENS, TOKENS, TOKENS)
def test_whatever_was_seen_costs_are_positive_finite_and_grow_with_tokens(
    seen: list[tuple[float, float, float, float]],
    prior: float,
    uncached: float,
    cached: float,
    reloaded: float,
    more: float,
) -> None:
    cost = PrefillCost(prior)
    for n, p, elapsed_s, x in seen:
        cost.observe(n, p, elapsed_s, x)
    took_s = cost.seconds(uncached, cached, reloaded)
    assert 0 <= took_s < float("inf")
    assert cost.seconds(uncached + 1, cached, reloaded) >= LEAST_TOKEN_S
    assert cost.seconds(uncached + more, cached, reloaded) >= took_s
    assert cost.seconds(uncached, cached + more, reloaded) >= took_s
    assert cost.seconds(uncached, cached, reloaded + more) >= took_s
    assert 0 < cost.tokens_per_s < float("inf")
    assert min(cost.coefficients) >= 0
    again = PrefillCost(1.0)
    again.resume(cost.state)
    assert again.seconds(uncached, cached, reloaded) == pytest.approx(took_s)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1, 1e9), st.floats(-1, 1e9), st.floats(-1, 1e5)), max_size=60), TOKENS, TOKENS)
def test_whatever_was_seen_steps_are_positive_finite_and_grow_with_the_batch(
    seen: list[tuple[float, float, float]], batch: float, context: float
) -> None:
    cost = DecodeCost()
    for mean_batch, mean_context, step_s in seen:
        cost.observe(mean_batch, mean_context, step_s)
    assert 0 < cost.step_s(batch, context) < float("inf")
    assert cost.step_s(batch, context) <= cost.step_s(batch + 1, context) <= cost.step_s(batch + 1, context + 100)
