"""The benchmark of growing fleets runs, and compares what belongs together."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growing import against_first
from tests.contract.test_benchmarks import run

CONVERSATION = Path("benchmarks/data/mooncake_conversation_15_minutes.jsonl.gz")


def test_fleets_of_replicas_and_routers(tmp_path: Path) -> None:
    printed, figures = run("growing", tmp_path, "--fleets", "3:1,3:4", "--minutes", "0.5", "--seeds", "2")
    assert list(figures) == ["3 replicas, 1 routers", "3 replicas, 4 routers"]
    assert "news 100 ms old" in printed
    for rounds in figures.values():
        assert [one["requests"] > 20 for one in rounds] == [True, True]
        assert all(0 < one["hit_ratio"] < 1 for one in rounds)
        assert all(1 <= one["imbalance_ratio"] <= 3 for one in rounds)


def test_replicas_of_unequal_speed(tmp_path: Path) -> None:
    _, figures = run("growing", tmp_path, "--unequal", "--minutes", "0.4", "--trace", str(CONVERSATION))
    assert list(figures) == [
        *("chats, 3/s: 2", "chats, 3/s: 1:3", "chats, 6/s: 2", "chats, 6/s: 1:3"),
        *("mooncake_conversation_15_minutes: 2", "mooncake_conversation_15_minutes: 1:3"),
    ]


def test_what_a_row_is_compared_with() -> None:
    results = {
        "8 replicas, 1 routers": [{"hit_ratio": 0.8}, {"hit_ratio": 0.5}, {"hit_ratio": 0.5}],
        "8 replicas, 64 routers": [{"hit_ratio": 0.4}, {"hit_ratio": 0.4}, {"hit_ratio": 0.5}],
        "64 replicas, 8 routers": [{"hit_ratio": 0.4}],
        "chats, 3/s: 2": [{"hit_ratio": 0.5}],
        "chats, 3/s: 1:3": [{"hit_ratio": 0.25}],
    }
    assert against_first(results, "8 replicas, 64 routers", "hit_ratio") == pytest.approx(0.8)
    assert against_first(results, "8 replicas, 1 routers", "hit_ratio") is None
    assert against_first(results, "64 replicas, 8 routers", "hit_ratio") is None
    assert against_first(results, "chats, 3/s: 1:3", "hit_ratio") == pytest.approx(0.5)
