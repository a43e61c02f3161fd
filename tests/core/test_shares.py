"""Fair shares: who has had least is next, and being away is neither rewarded nor forgiven."""

from collections import Counter

from router.core.shares import FEWEST, Shares


def served(shares: Shares[str], costs: dict[str, float], work_s: float) -> Counter[str]:
    """Serve those that always have something waiting until so much work is done; return who got how much."""
    had: Counter[str] = Counter()
    while had.total() < work_s:
        least_s = shares.least_s(costs)
        key = next(key for key in costs if shares.had_s(key) == least_s)
        shares.charge(key, costs[key])
        had[key] += costs[key]  # type: ignore[assignment]
    return had


def test_work_is_shared_and_not_requests() -> None:
    had = served(Shares(), {"big": 2.0, "small": 0.125}, 400.0)
    assert abs(had["big"] - had["small"]) <= 2.0


def test_one_that_was_away_brings_no_credit() -> None:
    shares: Shares[str] = Shares()
    served(shares, {"a": 1.0}, 1000.0)
    had = served(shares, {"a": 1.0, "b": 1.0}, 20.0)
    assert had == {"a": 10.0, "b": 10.0}


def test_one_that_has_had_too_much_waits_until_others_have_had_as_much() -> None:
    shares: Shares[str] = Shares()
    shares.charge("a", 50.0)
    for _ in range(50):
        assert shares.least_s("ab") == shares.had_s("b") < shares.had_s("a")
        shares.charge("b", 1.0)
    assert shares.least_s("ab") == shares.had_s("a")


def test_one_that_waits_is_not_owed_less_because_another_was_served_before_it() -> None:
    shares: Shares[str] = Shares()
    for _ in range(5):
        shares.least_s("ab")
        shares.charge("a", 1.0)
    assert (shares.had_s("a"), shares.had_s("b")) == (5.0, 0.0)


def test_what_is_remembered_is_bounded_by_who_is_in_debt() -> None:
    shares: Shares[int] = Shares()
    for number in range(10_000):
        shares.least_s((number, -1))
        shares.charge(number, 1.0)
        shares.least_s((-1,))
        shares.charge(-1, 1.5)
    assert len(shares._had_s) <= 2 * FEWEST
