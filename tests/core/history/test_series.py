import pytest

from router.core.history import layout
from router.core.history.quantiles import BUCKETS
from router.core.history.series import FIELDS, Name, Series


def test_every_series_has_keys_of_its_own_and_keeps_them() -> None:
    series = Series()
    firsts = [series.first(Name("model", name)) for name in ("a", "b", "a")]
    assert firsts == [0, FIELDS, 0]
    assert series.find(Name("model", "c")) is None
    assert series.kind("model") == {"a": 0, "b": FIELDS}


def test_a_forgotten_one_begins_at_nothing() -> None:
    series = Series()
    before = series.first(Name("replica", "r"))
    series.forget(Name("replica", "r"))
    series.forget(Name("replica", "never there"))
    assert series.first(Name("replica", "r")) > before


def test_passing_ones_without_counts_are_forgotten() -> None:
    series = Series()
    kept, gone, lasting = (series.first(name) for name in (Name("model", "a"), Name("model", "b"), Name("reason", "c")))
    series.forget_all_but([kept + 5], frozenset({"model"}))
    assert dict(series) == {Name("model", "a"): kept, Name("reason", "c"): lasting}
    assert gone not in dict(series).values()


def test_another_goes_on() -> None:
    first, second = Series(), Series()
    for name in ("a", "b"):
        first.first(Name("model", name))
    second.resume([(*name, key) for name, key in first])
    assert dict(second) == dict(first)
    assert second.first(Name("model", "c")) == first.first(Name("model", "c"))


@pytest.mark.parametrize(
    "firsts", [[("m", "a", -FIELDS)], [("m", "a", 1)], [("m", "a", 1 << 40)], [("m", "a", 0), ("m", "b", 0)]]
)
def test_keys_that_can_not_be_are_refused(firsts: list[tuple[str, str, int]]) -> None:
    with pytest.raises(ValueError, match="key"):
        Series().resume(firsts)


def test_everything_that_is_counted_fits_a_series() -> None:
    for fields in (BUCKETS, layout.TALLY_FIELDS, layout.ERROR_TOKENS + 1, len(layout.RETURN_BOUNDS_S) + 1):
        assert fields <= FIELDS
