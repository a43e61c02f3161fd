from bisect import bisect_left
from collections import Counter
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.history.quantiles import BUCKETS, ENDS_S, quantiles_s

times_s = st.lists(st.one_of(st.floats(0, 3_000), st.floats(0, 0.01), st.just(0.0)), min_size=1, max_size=200)


def counted(times: list[float]) -> Counter[int]:
    return Counter(bisect_left(ENDS_S, time) for time in times)


def test_the_buckets_are_as_wide_as_is_said() -> None:
    assert BUCKETS == 106
    assert ENDS_S[0] == pytest.approx(31e-6, rel=0.02)
    assert ENDS_S[-1] == pytest.approx(34 * 60, rel=0.01)
    for begin_s, end_s in zip(ENDS_S, ENDS_S[1:], strict=False):
        assert end_s / begin_s == pytest.approx(1.19, abs=0.001)


@given(times_s, st.floats(0.001, 1.0))
def test_a_quantile_is_in_the_bucket_of_the_true_one(times: list[float], ratio: float) -> None:
    true_s = sorted(times)[ceil(ratio * len(times)) - 1]
    (estimated_s,) = quantiles_s(counted(times), ratio)
    assert estimated_s is not None
    if true_s <= ENDS_S[0]:
        assert estimated_s == 0
    elif true_s > ENDS_S[-1]:
        assert estimated_s == ENDS_S[-1]
    else:
        bucket = bisect_left(ENDS_S, true_s)
        assert ENDS_S[bucket - 1] * 0.999999 <= estimated_s <= ENDS_S[bucket] * 1.000001
        assert estimated_s == pytest.approx(true_s, rel=0.19)


@given(times_s)
def test_quantiles_ascend(times: list[float]) -> None:
    found = quantiles_s(counted(times), 0.0, 0.1, 0.5, 0.9, 0.95, 1.0)
    assert found == sorted(found, key=lambda seconds: seconds or 0.0)


def test_between_the_ends_of_a_bucket_it_is_interpolated() -> None:
    (median_s,) = quantiles_s({40: 100}, 0.5)
    assert median_s == pytest.approx((ENDS_S[39] * ENDS_S[40]) ** 0.5)


def test_of_nothing_there_is_none() -> None:
    assert quantiles_s({}, 0.5, 0.95) == [None, None]
    assert quantiles_s({3: 0}, 0.5) == [None]
