"""Figures, curves and rows of runs that can be reckoned by hand."""

from math import isnan

import pytest

from router.replay.plan import Result
from router.replay.report.figures import CURVE_STEPS, curves_of, figures_of, quantile
from router.replay.report.rows import headings, rows
from tests.replay.report.results import answered, plan, result


def test_figures():
    figures = figures_of(result("affinity"))
    assert (figures.policy, figures.replicas, figures.kv_tokens, figures.requests) == ("affinity", 2, 1_000, 5)
    assert (figures.hit_ratio, figures.pooled_share_ratio, figures.ceiling_share_ratio) == (0.5, 0.8, 0.625)
    assert [figures.ttft_p50_s, figures.ttft_p95_s, figures.ttft_p99_s] == pytest.approx([0.3, 0.4, 0.4])
    assert [figures.e2e_p50_s, figures.e2e_p95_s] == pytest.approx([1.3, 2.4])
    assert figures.imbalance_ratio == 1.2, "120 of 200 uncached tokens, where 100 are the mean"
    assert figures.refused_ratio == 0.2


def test_a_run_without_answers_has_no_figures():
    figures = figures_of(Result(plan("affinity")))
    assert figures.requests == 0
    assert isnan(figures.hit_ratio)
    assert isnan(figures.ttft_p95_s)
    assert isnan(figures.imbalance_ratio)
    assert rows([figures])[0].cells == ["0", *["-"] * 11]
    curves = curves_of(Result(plan("affinity")))
    assert (curves.ttfts_s, curves.moments, curves.uncached_tokens) == ([], [], [0, 0])


@pytest.mark.parametrize(("ratio", "found"), [(0.0, 1.0), (0.49, 2.0), (0.5, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_quantiles(ratio: float, found: float):
    assert quantile([1.0, 2.0, 3.0, 4.0], ratio) == found
    assert isnan(quantile([], ratio))


def test_rows_compare_with_the_first():
    first, second = rows([figures_of(result("affinity")), figures_of(result("rr", slower=10))])
    cells = dict(zip(headings(), first.cells, strict=True))
    assert first.policy == "affinity"
    assert cells == {
        "requests": "5", "hits %": "50.0", "of pooled %": "80.0", "of ceiling %": "62.5", "TTFT p50 s": "0.30",
        "TTFT p95 s": "0.40", "TTFT p99 s": "0.40", "e2e p50 s": "1.3", "e2e p95 s": "2.4", "busiest / mean": "1.20",
        "refused %": "20.0", "p95 / first policy's": "1.00",
    }  # fmt: skip
    assert (second.policy, second.cells[-1]) == ("rr", "10.00")


def test_curves():
    curves = curves_of(result("affinity", warm_up_minutes=0.0))
    assert len(curves.ttfts_s) == CURVE_STEPS + 1
    assert [curves.ttfts_s[step] for step in (0, 24, 25, 75, 100)] == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.4])
    assert curves.uncached_tokens == [120, 80]
    # 30 s in 24 steps of 1.25 s.
    assert [moment.minute * 60 for moment in curves.moments] == pytest.approx([0.625, 10.625, 20.625, 29.375])
    assert [moment.hit_ratio for moment in curves.moments] == [0.0, 0.8, 0.6, 0.6]
    assert [moment.ttft_p95_s for moment in curves.moments] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_moments_start_behind_the_warm_up():
    found = Result(plan("affinity", warm_up_minutes=2.0), [answered(120.0, 1, 10, 0, 0), answered(144.0, 1, 10, 0, 0)])
    assert [moment.minute * 60 for moment in curves_of(found).moments] == pytest.approx([120.5, 143.5])


def test_one_request_is_a_run_too():
    curves = curves_of(Result(plan("affinity"), [answered(0.0, 1.0, 10, 0, 0)]))
    assert len(curves.moments) == 1
    assert set(curves.ttfts_s) == {1.0}
