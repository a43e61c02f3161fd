"""A frame of `warmroute top`: what it says, and that it fits."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from router.app.terminal.figures import WINDOWS
from router.app.terminal.frame import frame
from router.app.terminal.numbers import percent, plain, seconds, tokens, whole_percent
from router.app.terminal.view import View, Watched
from tests.app.terminal_samples import (
    CAUSES,
    NOW_S,
    decision,
    fleet,
    models,
    overview,
    replica,
    totals,
    view,
    watched,
    window,
)


def drawn(shown: View, width: int = 160, height: int | None = None) -> list[str]:
    """The lines of a frame, without styles."""
    console = Console(width=width, file=io.StringIO(), legacy_windows=False)
    lines = console.render_lines(frame(shown, width, height), console.options)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def row(lines: list[str], word: str) -> list[str]:
    """The words of the one line that begins with this one."""
    (found,) = [line.split() for line in lines if line.split()[:1] == [word]]
    return found


# What it says


def test_the_headline_has_both_shares_and_what_was_saved() -> None:
    lines = drawn(view(watched(overview())))
    assert lines[0].startswith("warmroute 1.2.3  affinity  http://127.0.0.1:9090  up 3h12m")
    assert "[5m] 1h  24h   100 requests, 3 failed" in lines[1]
    assert lines[1].endswith("100k prompt tokens")
    assert row(lines, "from")[2:4] == ["75.0%", "reported"]
    assert row(lines, "from")[-2:] == ["80.0%", "predicted"]
    assert "50s of prefill, 1.3s for each warm turn" in lines[3]
    assert "warm p50 210ms p95 840ms of 80   cold p50 1.4s p95 4.2s of 20" in lines[4]
    assert "2 interactive, 11 batch  Redis slow  routers 1  overhead p95 0.4ms" in lines[5]
    assert row(lines, "decisions") == ["decisions", "warm", "80", "new", "15", "spilled", "5"]
    assert row(lines, "errors") == ["errors", "no_replica", "2"]


@pytest.mark.parametrize(("chosen", "requests"), list(zip(WINDOWS, ("100", "1,200", "28,800"), strict=True)))
def test_the_window_is_that_of_all_figures(chosen: str, requests: str) -> None:
    lines = drawn(view(watched(overview()), chosen=chosen))
    assert f"[{chosen}]" in lines[1]
    assert f"{requests} requests" in lines[1]
    assert row(lines, "r-00000001")[-1] == f"{int(requests.replace(',', '')) // 10:,}"


def test_causes_stand_with_their_share_the_dearest_first() -> None:
    lines = drawn(view(watched(overview())), width=100)
    places = [index for cause in CAUSES for index, line in enumerate(lines) if line.startswith(cause)]
    assert places == sorted(places)
    assert len(places) == len(CAUSES)
    assert "first-seen" not in "".join(lines)  # such turns lost nothing
    assert row(lines, "evicted")[:5] == ["evicted", "6", "1.2k", "40%", "500ms"]


def test_a_replica_has_state_load_mirror_and_hits() -> None:
    ejected = replica(2, name="gpu-2", state="ejected", pressure_ratio=0.0, mirror={}, eviction_age_s=None)
    lines = drawn(view(watched(overview(replicas=[replica(1), ejected]))), width=140)
    expected = "r-00000001 10.0.0.1:8000 ready 12% 1.2k 3 87% 12m31s 98.0% 75.0% 300 10"
    assert row(lines, "r-00000001") == expected.split()
    assert row(lines, "gpu-2")[:4] == ["gpu-2", "10.0.0.2:8000", "ejected", "0%"]
    assert row(lines, "gpu-2")[6:9] == ["–", "–", "–"]


def test_decisions_say_what_was_cached_and_what_went_wrong() -> None:
    rows = [
        decision(1),
        decision(2, turn={"lost_tokens": 2_900, "cause": "evicted"}),
        decision(3, status=503, error="no_replica", usage={}, ttft_s=None),
    ]
    lines = drawn(view(watched(overview(), *rows)))
    hit, missed, failed = lines[-3:]
    assert hit.split() == ["warm", "r-00000001", "3.1k", "2.9k", "2.9k", "210ms", "2.2s", "model-0", "id-1"]
    assert "evicted 2.9k" in missed
    assert "503 no_replica" in failed
    assert failed.split()[2:6] == ["3.1k", "2.9k", "–", "–"]


def test_before_any_request_it_says_that_there_is_nothing_yet() -> None:
    nothing = totals(0, failed=0, hit_ratio=None, predicted_ratio=None)
    empty = nothing | {"causes": [], "reasons": {}, "errors": {}, "phases": {}, "ttft": {}, "saved_ttft_s": None}
    idle = overview(windows=dict.fromkeys(WINDOWS, empty), models={}, replicas=[], redis=None, routers=[])
    text = "\n".join(drawn(view(watched(idle))))
    assert "nothing yet" in text
    assert "no answer was streamed" in text
    assert "none yet" in text
    assert "Redis" not in text


def test_engines_that_say_nothing_of_cache_leave_the_predicted_share() -> None:
    mute: dict[str, Any] = {"reported_prompt_tokens": 0, "engine_cached_tokens": 0, "hit_ratio": None}
    lines = drawn(view(watched(overview(windows=dict.fromkeys(WINDOWS, window(**mute))))))
    assert "70.0% counted" in lines[2], "the engines' own counters stand in"
    silent = window(**mute, counter_queries_tokens=0, counter_hits_tokens=0)
    lines = drawn(view(watched(overview(windows=dict.fromkeys(WINDOWS, silent)))))
    assert "no engine says" in lines[2]
    assert "80.0% predicted" in lines[2]


def test_models_are_listed_where_there_are_several() -> None:
    assert "model-0 " not in "\n".join(drawn(view(watched(overview()))))
    lines = drawn(view(watched(overview(models=models("model-0", "model-1", "model-2")))))
    assert row(lines, "model-2") == ["model-2", "100", "100k", "75.0%", "80.0%", "3.0k"]


# Several routers


def test_routers_are_added_up_and_each_has_its_own_row() -> None:
    other = overview(replicas=[replica(1, id="r-other", state="suspect", pressure_ratio=0.5), replica(3)])
    routers = [watched(overview(), label="http://a:1"), watched(other, label="http://b:2")]
    lines = drawn(view(*routers))
    assert "2 routers" in lines[0]
    assert "200 requests, 6 failed" in lines[1]
    assert row(lines, "a:1") == ["a:1", "100", "75.0%", "3.0k", "210ms/840ms", "1.4s/4.2s", "13", "slow", "3h12m"]
    assert "TTFT   " not in "\n".join(lines)  # quantiles of several routers have no sum
    merged = row(lines, "r-00000001")
    assert merged[2:6] == ["suspect", "50%", "2.4k", "6"]
    assert merged[-1] == "20"
    assert row(lines, "evicted")[:3] == ["evicted", "12", "2.4k"]
    assert row(lines, "r-00000003")[2] == "ready"


@pytest.mark.parametrize(("timed", "order"), [(False, "a-1 b-1 a-2 b-2"), (True, "b-1 b-2 a-1 a-2")])
def test_decisions_of_all_routers_come_newest_first_or_in_turn(timed: bool, order: str) -> None:
    def rows(name: str, newest_s: float) -> list[dict[str, Any]]:
        at_s: dict[str, Any] = {"at_s": newest_s} if timed else {}
        return [decision(request_id=f"{name}-{number}", **at_s) for number in (1, 2)]

    lines = drawn(view(watched(overview(), *rows("a", NOW_S - 9)), watched(overview(), *rows("b", NOW_S - 1))))
    assert " ".join(line.split()[-1] for line in lines[-4:]) == order
    assert (lines[-4].split()[0] == "warm") != timed


def test_a_router_that_is_away_keeps_its_last_figures_and_says_since_when() -> None:
    away = watched(overview())
    away.lost_since_s, away.why = 1_699_999_000.0, "connection refused"
    lines = drawn(view(away))
    assert "no answer since" in lines[1]
    assert "(connection refused); these are its last figures" in lines[1]
    assert "100 requests" in lines[2]


def test_a_router_that_never_answered_leaves_the_others_figures() -> None:
    away = Watched("http://b:2", lost_since_s=1_699_999_000.0, why="connection refused")
    lines = drawn(view(watched(overview(), label="http://a:1"), away))
    assert "it has not answered yet" in lines[1]
    assert "100 requests" in lines[2]
    assert row(lines, "b:2")[1:3] == ["0", "–"]


# That it fits


@pytest.mark.parametrize("width", [40, 60, 80, 100, 118, 200])
@pytest.mark.parametrize("height", [8, 16, 24, 60])
@pytest.mark.parametrize("replicas", [0, 5, 60])
@pytest.mark.parametrize("routers", [1, 3])
def test_it_fits(width: int, height: int, replicas: int, routers: int) -> None:
    rows = [decision(number) for number in range(100)]
    shown = view(
        *(watched(overview(replicas=fleet(replicas)), *rows, label=f"http://r:{port}") for port in range(routers))
    )
    lines = drawn(shown, width, height)
    assert len(lines) <= max(height, 11)  # the headline and the keys are always there; the screen cuts them off
    assert max(map(len, lines)) <= width
    assert lines[-1] == "1 2 3 window   q quit"
    assert any("75.0% reported" in line for line in lines)


@pytest.mark.parametrize("height", [24, 30, 50])
def test_no_line_is_left_empty_while_there_are_decisions(height: int) -> None:
    rows = [decision(number) for number in range(100)]
    assert len(drawn(view(watched(overview(), *rows)), 80, height)) == height


def test_where_not_all_replicas_fit_those_in_trouble_do() -> None:
    replicas = [*fleet(40), replica(50, state="ejected"), replica(51, pressure_ratio=0.95)]
    text = "\n".join(drawn(view(watched(overview(replicas=replicas))), 80, 24))
    assert "r-00000032" in text
    assert "r-00000033" in text
    assert "more replicas" in text


def test_at_80_columns_nothing_of_a_usual_row_is_cut() -> None:
    lines = drawn(view(watched(overview(), *[decision(number) for number in range(9)])), 80, 24)
    assert "…" not in "\n".join(lines)


# Words and numbers


def test_nothing_that_a_terminal_would_obey_comes_from_a_client() -> None:
    evil = "m\x1b]0;owned\x07\x1b[2J\r\n\x9b"
    rows = [decision(1, model=evil, request_id=evil, status=500, error=evil)]
    hostile = overview(models=models(evil, "b"), replicas=[replica(1, name=evil, state=evil, url=f"http://{evil}")])
    text = "".join(drawn(view(watched(hostile, *rows))))
    assert text.isprintable()
    assert plain(evil) in text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1_000, "1.0k"), (9_949, "9.9k"), (9_951, "10k"), (999_499, "999k"), (999_500, "1.0M"),
     (4_214_000, "4.2M"), (999_500_000, "1.0G"), (25e9, "25G")],
)  # fmt: skip
def test_tokens(number: float, text: str) -> None:
    assert tokens(number) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(None, "–"), (0, "0s"), (-1.0, "0s"), (0.0004, "0.4ms"), (0.21, "210ms"), (0.9994, "999ms"), (0.9996, "1.0s"),
     (1.44, "1.4s"), (45.3, "45s"), (99.4, "99s"), (99.6, "1m39s"), (751, "12m31s"), (3_600, "1h00m"),
     (86_399, "23h59m"), (187_200, "2d04h")],
)  # fmt: skip
def test_seconds(duration_s: float | None, text: str) -> None:
    assert seconds(duration_s) == text


def test_shares() -> None:
    assert (percent(None), percent(0.8734), percent(1.0)) == ("–", "87.3%", "100.0%")
    assert [whole_percent(ratio) for ratio in (None, 0.0, 0.001, 0.12, 1.0)] == ["–", "0%", "<1%", "12%", "100%"]
