"""A sweep's plans, its answer in a sentence, and the knee of its curve."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.report.figures import Figures, figures_of
from router.replay.sweep import Sweep, answer, knee, least_enough
from tests.replay.report.results import plan, result

MEMORY = Sweep("kv-tokens", (200_000, 400_000, 800_000))


def points(*waits_s: float) -> list[Figures]:
    base = figures_of(result("affinity"))
    return [
        replace(base, kv_tokens=value, ttft_p95_s=wait_s) for value, wait_s in zip(MEMORY.values, waits_s, strict=True)
    ]


def test_plans():
    sizes = [(one.replicas, one.engine.kv_tokens) for one in MEMORY.plans(plan("affinity"))]
    assert sizes == [(2, 200_000), (2, 400_000), (2, 800_000)]
    sizes = [(one.replicas, one.engine.kv_tokens) for one in Sweep("replicas", (4, 8)).plans(plan("affinity"))]
    assert sizes == [(4, 1_000), (8, 1_000)]


def test_the_least_that_is_enough():
    assert answer(MEMORY, points(5.0, 1.5, 1.0), 2.0) == (
        "affinity: 400,000 KV tokens on each of 2 replicas are enough for a TTFT p95 of 2 s or less: "
        "1.50 s, with 50.0 % of prompt tokens from cache."
    )


def test_the_first_is_enough_already():
    assert "200,000 KV tokens on each of 2 replicas are already enough" in answer(MEMORY, points(2.0, 1.5, 1.0), 2.0)


def test_none_is_enough():
    assert answer(MEMORY, points(9.0, 5.0, float("nan")), 0.5) == (
        "affinity: none of these keeps TTFT p95 at 0.5 s or less; "
        "closest: 400,000 KV tokens on each of 2 replicas, with 5.00 s."
    )


def test_luck_is_not_enough():
    found = least_enough(MEMORY, points(1.0, 3.0, 1.0), 2.0)
    assert found is not None
    assert found.kv_tokens == 800_000


def test_replicas():
    sweep = Sweep("replicas", (4, 8))
    base = figures_of(result("rr"))
    found = answer(sweep, [replace(base, replicas=4, ttft_p95_s=3), replace(base, replicas=8, ttft_p95_s=1)], 2.0)
    assert found.startswith("rr: 8 replicas of 1,000 KV tokens are enough for a TTFT p95 of 2 s or less: 1.00 s")


def test_a_knee():
    assert knee([1, 2, 3, 4], [0.0, 0.8, 0.9, 1.0]) == 1
    assert knee([1, 2, 3], [0.0, 0.5, 1.0]) is None, "a straight line"
    assert knee([1, 2, 3], [1.0, 1.0, 1.0]) is None, "a flat one"
    assert knee([1, 2], [0.0, 1.0]) is None
    assert knee([1], [0.0]) is None


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=8))
def test_a_knee_is_no_end(places: list[tuple[int, float]]):
    found = knee([place[0] for place in places], [place[1] for place in places])
    assert found is None or 0 < found < len(places) - 1


@pytest.mark.parametrize("target_s", [0.5, 1.0, 2.0, 20.0])
def test_an_answer_keeps_the_target(target_s: float):
    found = least_enough(MEMORY, points(3.0, 1.5, 0.7), target_s)
    assert (found is None) == (target_s < 0.7)
    assert found is None or found.ttft_p95_s <= target_s
