"""The demo's figures from a handful of answers with exact results."""

import io

import pytest
from rich.console import Console

from router.app.demo.chats import Answer, Outcome
from router.app.demo.report import MOST_LAG_S, Result, result_of, table, verdicts
from router.sim.workload import ChatTurn

TURN = ChatTurn("chat", 1, 0.0, [], 100, 10, True)


def answer(replica: str, cached_tokens: int, ttft_s: float = 0.1) -> Answer:
    return Answer(TURN, replica, "", ttft_s, prompt_tokens=100, cached_tokens=cached_tokens, completion_tokens=10)


def test_figures_of_a_run() -> None:
    outcome = Outcome([answer("a", 50, 0.1), answer("a", 90, 0.2), answer("b", 100 - 30, 0.3)])
    outcome.lateness.seen_s["client"] += [0.0, 0.02]
    result = result_of(outcome, replicas=3, pooled_hit_ratio=0.8, time_scale=10.0)
    assert result.lag_p95_s == {"client": pytest.approx(0.19)}
    assert result.requests == 3
    assert result.hit_ratio == pytest.approx(0.7)
    assert result.pooled_share_ratio == pytest.approx(0.875)
    assert result.requests_per_replica == (2, 1, 0)
    assert result.busiest_ratio == pytest.approx(60 * 3 / 90)
    assert result.ttft_p50_s == pytest.approx(2.0)
    assert result.ttft_p95_s == pytest.approx(2.9)


def result(ttft_s: tuple[float, float] = (0.1, 0.8), lag_s: dict[str, float] | None = None) -> Result:
    return Result(10, 0.79, 0.8, *ttft_s, (5, 5), 1.1, lag_s or {})


@pytest.mark.parametrize(
    ("hit_ratio", "busiest_ratio", "says"),
    [(0.76, 1.3, ["reached", "reached"]), (0.75, 1.3, ["missed", "reached"]), (0.76, 1.31, ["reached", "missed"])],
)
def test_verdicts_say_whether_the_figures_were_reached(hit_ratio: float, busiest_ratio: float, says: list[str]) -> None:
    ours = Result(10, hit_ratio, 0.8, 0.1, 0.2, (5, 5), busiest_ratio)
    lines = verdicts(ours, result((0.4, 3.2)))
    assert ["reached" if "reached" in line else "missed" for line in lines] == [*says, "reached"]


@pytest.mark.parametrize(
    ("ttft_s", "says"),
    [
        ((0.1, 0.8), "no worse than round robin's: [green]reached[/]"),
        ((0.4, 3.2), "no worse than round robin's: [green]reached[/]"),
        ((0.1, 24.65), "p95 worse than round robin's: [red]missed[/]"),
        ((0.5, 24.65), "p50 and p95 worse than round robin's: [red]missed[/]"),
    ],
)
def test_waits_are_held_against_round_robins(ttft_s: tuple[float, float], says: str) -> None:
    *_, times = verdicts(result(ttft_s), result((0.4, 3.2)))
    assert times.endswith(says)
    assert f"p95 {ttft_s[1]:.2f} s against 3.20" in times


@pytest.mark.parametrize("ttft_s", [(0.1, 0.8), (0.5, 24.65)])
@pytest.mark.parametrize("late", ["ours", "theirs"])
def test_no_time_is_reached_on_a_machine_that_is_too_busy(ttft_s: tuple[float, float], late: str) -> None:
    busy, quiet = {"client": 0.01, "replicas": MOST_LAG_S + 0.75}, {"client": 0.02, "replicas": 0.04}
    ours = result(ttft_s, busy if late == "ours" else quiet)
    hits, balance, times, told = verdicts(ours, result((0.4, 3.2), busy if late == "theirs" else quiet))
    assert "reached" in hits
    assert "reached" in balance
    assert "reached" not in times
    assert times.endswith("worse than round robin's: [yellow]not judged[/]")
    assert "too busy for the times to mean anything[/]; hits and balance hold" in told
    assert "client 0.02 s, replicas 1.00 s" in told


def test_processes_that_are_in_time_say_nothing() -> None:
    lag_s = {"client": MOST_LAG_S, "router": 0.05}
    assert len(verdicts(result(lag_s=lag_s), result((0.4, 3.2), lag_s))) == 3


def test_the_table_has_a_column_for_each_policy() -> None:
    results = {"one": Result(10, 0.5, 0.8, 0.1, 0.2, (6, 4), 1.2), "two": Result(20, 0.25, 0.8, 3.0, 4.0, (20, 0), 2.0)}
    written = io.StringIO()
    Console(file=written, width=100).print(table(results))
    rows = [line.split() for line in written.getvalue().splitlines()]
    assert ["one", "two"] in rows
    assert ["TTFT", "p95,", "s", "0.20", "4.00"] in rows
