"""Scales: places between 0 and 1, round ticks within the range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.report.scale import Scale, linear, logarithmic, round_up, tick_text

figures = st.floats(1e-3, 1e9)


def test_linear():
    scale = linear([3.0, 87.0, float("nan")], low=0.0)
    assert (scale.low, scale.high) == (0.0, 100.0)
    assert scale.ticks() == [0, 20, 40, 60, 80, 100]
    assert [scale.place(figure) for figure in (-5, 0, 25, 100, 200)] == [0, 0, 0.25, 1, 1]


def test_logarithmic():
    scale = logarithmic([0.0, 0.01, 100.0], least=0.01)
    assert (scale.low, scale.high) == (0.01, 100.0)
    assert scale.ticks() == pytest.approx([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100])
    assert [scale.place(figure) for figure in (0.0, 0.01, 1.0, 100.0)] == pytest.approx([0, 0, 0.5, 1])


def test_many_decades_have_one_tick_each():
    assert Scale(1e-3, 1e6, log=True).ticks() == pytest.approx([10.0**decade for decade in range(-3, 7)])


@given(st.lists(figures, max_size=5))
def test_a_scale_holds_its_figures(given_figures: list[float]):
    for scale in (linear(given_figures), linear(given_figures, low=0.0), logarithmic(given_figures)):
        assert scale.low < scale.high
        assert all(scale.low <= figure <= scale.high * (1 + 1e-9) for figure in given_figures)
        places = [scale.place(tick) for tick in scale.ticks()]
        assert places == sorted(places)
        assert len(places) < 20


@pytest.mark.parametrize(("figure", "rounded"), [(1.0, 1), (1.1, 2), (3.0, 5), (7.0, 10), (0.03, 0.05), (200, 200)])
def test_round_up(figure: float, rounded: float):
    assert round_up(figure) == pytest.approx(rounded)


@pytest.mark.parametrize(("figure", "text"), [(0.05, "0.05"), (20, "20"), (1_500, "1.5k"), (1.25e6, "1.25M"), (0, "0")])
def test_tick_text(figure: float, text: str):
    assert tick_text(figure) == text
