"""The demo's figures from a handful of answers with exact results."""

import io

import pytest
from rich.console import Console

from router.app.demo.chats import Answer, Outcome
from router.app.demo.report import Result, result_of, table, verdicts
from router.sim.workload import ChatTurn

TURN = ChatTurn("chat", 1, 0.0, [], 100, 10, True)


def answer(replica: str, cached_tokens: int, ttft_s: float = 0.1) -> Answer:
    return Answer(TURN, replica, "", ttft_s, prompt_tokens=100, cached_tokens=cached_tokens, completion_tokens=10)


def test_figures_of_a_run() -> None:
    outcome = Outcome([answer("a", 50, 0.1), answer("a", 90, 0.2), answer("b", 100 - 30, 0.3)])
    result = result_of(outcome, replicas=3, pooled_hit_ratio=0.8, time_scale=10.0)
    assert result.requests == 3
    assert result.hit_ratio == pytest.approx(0.7)
    assert result.pooled_share_ratio == pytest.approx(0.875)
    assert result.requests_per_replica == (2, 1, 0)
    assert result.busiest_ratio == pytest.approx(60 * 3 / 90)
    assert result.ttft_p50_s == pytest.approx(2.0)
    assert result.ttft_p95_s == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("hit_ratio", "busiest_ratio", "says"),
    [(0.76, 1.3, ["reached", "reached"]), (0.75, 1.3, ["missed", "reached"]), (0.76, 1.31, ["reached", "missed"])],
)
def test_verdicts_say_whether_the_figures_were_reached(hit_ratio: float, busiest_ratio: float, says: list[str]) -> None:
    result = Result(10, hit_ratio, 0.8, 0.1, 0.2, (5, 5), busiest_ratio)
    assert ["reached" if "reached" in line else "missed" for line in verdicts(result)] == says


def test_the_table_has_a_column_for_each_policy() -> None:
    results = {"one": Result(10, 0.5, 0.8, 0.1, 0.2, (6, 4), 1.2), "two": Result(20, 0.25, 0.8, 3.0, 4.0, (20, 0), 2.0)}
    written = io.StringIO()
    Console(file=written, width=100).print(table(results))
    rows = [line.split() for line in written.getvalue().splitlines()]
    assert ["one", "two"] in rows
    assert ["TTFT", "p95,", "s", "0.20", "4.00"] in rows
