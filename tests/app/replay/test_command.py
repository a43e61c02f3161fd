"""The command as a process: a minute of the trace that ships, its table, its page, its JSON, its answer."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.app.replay.commands import EXCERPT, replay, rows_of
from tests.replay.report.page_reader import PageReader

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay")


@pytest.fixture(scope="module")
def minute(folder: Path) -> subprocess.CompletedProcess[str]:
    """One minute through two policies, in a process each."""
    return replay(
        EXCERPT, "--minutes", "1", "--kv-tokens", "1.25M", "--policy", "affinity,rr", "--jobs", "2",
        "--json", folder / "found.json", "--html", folder / "found.html",
    )  # fmt: skip


def test_it_prints_a_row_for_each_policy(minute: subprocess.CompletedProcess[str]) -> None:
    assert (minute.returncode, minute.stderr) == (0, "")
    first, second = rows_of(minute.stdout)
    assert (first[0], second[0]) == ("affinity", "rr")
    assert (first[-1], first[1]) == ("1.00", second[1])
    assert "8 replicas of 1,250,000 KV tokens; one pooled cache would hit" in minute.stdout


def test_the_page_has_the_same_numbers(minute: subprocess.CompletedProcess[str], folder: Path) -> None:
    seen = PageReader((folder / "found.html").read_text())
    (table,) = seen.tables
    assert table[1:] == rows_of(minute.stdout)
    assert (len(seen.plots), seen.loads, seen.open) == (4, [], [])
    assert len(seen.lines) == 2 * 4


def test_json_has_them_unrounded(minute: subprocess.CompletedProcess[str], folder: Path) -> None:
    found = json.loads((folder / "found.json").read_text())
    assert [run["policy"] for run in found["runs"]] == ["affinity", "rr"]
    for run, row in zip(found["runs"], rows_of(minute.stdout), strict=True):
        assert [f"{run['requests']}", f"{run['hit_ratio'] * 100:.1f}", f"{run['ttft_p95_s']:.2f}"] == [
            row[1], row[2], row[6],
        ]  # fmt: skip
        assert 0 < run["hit_ratio"] <= run["ceiling_ratio"] < 1
    assert found["workload"] == EXCERPT.name
    assert found["settings"]["counted"] == "1 minutes after 0 of warm-up"


def test_one_process_or_two_find_the_same(minute: subprocess.CompletedProcess[str]) -> None:
    again = replay(EXCERPT, "--minutes", "1", "--kv-tokens", "1.25M", "--policy", "affinity,rr", "--jobs", "1")
    assert again.stdout == minute.stdout


def test_a_sweep_answers(tmp_path: Path) -> None:
    outcome = replay(
        "chats:1", "--minutes", "1", "--warm-up", "0", "--policy", "affinity,rr", "--sweep", "replicas=3,1,2",
        "--target-ttft-p95", "60", "--html", tmp_path / "sweep.html",
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    assert [row[0] for row in rows_of(outcome.stdout)] == ["affinity", "rr"] * 3
    captions = [line.partition(" replica")[0] for line in outcome.stdout.splitlines() if "pooled cache" in line]
    assert captions == ["1", "2", "3"]
    answers = [line for line in outcome.stdout.splitlines() if "TTFT p95 of 60 s or less" in line]
    assert [line.partition(" is already enough")[0] for line in answers] == [
        "affinity: 1 replica of 300,000 KV tokens", "rr: 1 replica of 300,000 KV tokens",
    ]  # fmt: skip
    seen = PageReader((tmp_path / "sweep.html").read_text())
    assert [label.partition(":")[0] for label in seen.plots] == ["Hit rate", "TTFT p95"]
    assert seen.answers == answers


def test_a_sweep_that_none_reaches(tmp_path: Path) -> None:
    outcome = replay(
        "chats:1", "--minutes", "1", "--warm-up", "0", "--policy", "rr", "--sweep", "kv-tokens=20k,40k",
        "--target-ttft-p95", "0.001",
    )  # fmt: skip
    assert "rr: none of these keeps TTFT p95 at 0.001 s or less" in outcome.stdout
