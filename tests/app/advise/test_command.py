"""The command: table, recommendation, record; and a check of the record against traffic that changed or did not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from router.app.cli import main
from router.replay.advice.record import Data, read_data
from tests.app.advise.commands import PEOPLE, TURNS, people_file
from tests.app.replay.commands import refused

pytestmark = pytest.mark.timeout(120)

SMALL = ("--replicas", "1", "--kv-tokens", "5k", "--jobs", "1")
"""One replica with room for one of the five."""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process; gives its exit code and what it printed."""

    def advise(*arguments: str | Path) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main(["advise", *map(str, arguments)])
        printed = capsys.readouterr()
        assert printed.err == ""
        return int(str(left.value.code)), printed.out

    return advise


@pytest.fixture
def record(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "decision.md"
    assert run(people_file(tmp_path), *SMALL, "--target-ttft-p95", "0.3", "--record", path, "--driver", "570.1")[0] == 0
    return path


def fired(printed: str) -> list[str]:
    return re.findall(r"^ *(\S.*?) +fired ", printed, re.MULTILINE)


def test_it_prints_what_it_measured_tried_and_recommends(run: Run, tmp_path: Path) -> None:
    code, printed = run(people_file(tmp_path), *SMALL, "--target-ttft-p95", "0.3", "--host-gib", "8")
    assert code == 0
    assert f"; {PEOPLE * TURNS} requests, prompts of 3,200 tokens at the median, 4,800 at p95" in printed
    rows = {line.split("  ")[0].strip(): line.split() for line in printed.splitlines() if re.search(r" \d+\.\d ", line)}
    assert rows["free, prefix cache"][3] == "0.0"
    assert rows["offload, 8 GiB each"][4] == "50.0", "all five fit: 24,000 tokens of 128 KiB are 2.9 GiB"
    assert {"2 replicas", "3 replicas"} <= rows.keys()
    assert "Recommended: offload, 8 GiB each. As it is, TTFT p95 is 0." in printed
    assert "--kv-offloading-size 8 --kv-events-config" in printed


def test_the_record_says_the_same(run: Run, record: Path) -> None:
    text = record.read_text()
    data = read_data(text)
    assert isinstance(data, Data)
    assert (data.recommended, data.met, data.fleet.replicas, data.fleet.kv_tokens) == (
        "offload, 4 GiB each",
        True,
        1,
        5_000,
    )
    assert (data.replayed.driver, data.replayed.prompt_p95_tokens, data.live) == ("570.1", 4_800, None)
    assert re.search(r"^- Date: \d{4}-\d\d-\d\d$", text, re.MULTILINE)


def test_the_same_traffic_is_no_reason_to_decide_again(run: Run, record: Path, tmp_path: Path) -> None:
    code, printed = run(people_file(tmp_path), "--check", record)
    assert (code, fired(printed)) == (0, [])
    assert printed.rstrip().endswith("None fired: the decision holds.")


def test_more_and_longer_traffic_is(run: Run, record: Path, tmp_path: Path) -> None:
    code, printed = run(people_file(tmp_path, speed=2.0), "--check", record)
    assert (code, fired(printed)) == (1, ["requests/s", "second team: new sessions/s"])
    assert printed.rstrip().endswith("2 fired: decide again.")
    code, printed = run(people_file(tmp_path, longer=1.25), "--check", record, "--kv-tokens", "7k")
    assert (code, fired(printed)) == (1, ["longer contexts: prompt p95, tokens"])


def test_what_is_said_beside_the_traffic_is_compared_too(run: Run, record: Path, tmp_path: Path) -> None:
    code, printed = run(people_file(tmp_path), "--check", record, "--driver", "575.0", "--vllm-version", "0.33.0")
    assert (code, fired(printed)) == (1, ["driver"]), "the record knows no release of vLLM"


def test_chats_need_no_file(run: Run) -> None:
    code, printed = run("chats:0.5", "--minutes", "1", "--warm-up", "0", "--replicas", "1", "--jobs", "1")
    assert code == 0
    assert "Recommended: " in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "say which traffic: a trace, chats:RATE, or --admin URL of a router that records its own"),
        (("nothing.jsonl",), "can't read nothing.jsonl: No such file or directory"),
        (("chats:1", "--record", "no/where.md"), "can't write no/where.md: there is no directory no"),
        (("chats:1", "--host-gib", "64,x"), "--host-gib: 'x' is no number above 0"),
        (("chats:1", "--host-speed", "0"), "--host-speed: '0' is no number above 0"),
        (("chats:1", "--model-profile", "abacus"), "--model-profile: there is no 'abacus'; there are default, "),
        (("chats:1", "--check", "no.md", "--record", "a.md"), "--check looks at a record, --record writes one"),
        (("--check", "no.md"), "--check compares a record with a trace or with --admin URL: give one of them"),
        (("chats:1", "--check", "no.md"), "can't read no.md: No such file or directory"),
        (("chats:1", "--check", "."), "can't read .: Is a directory"),
        (("--admin", "http://127.0.0.1:1"), "http://127.0.0.1:1: connection refused"),
    ],
)  # fmt: skip
def test_mistakes(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["advise", *arguments])
    assert refused(left.value.code, *capsys.readouterr()).startswith(told)


def test_a_page_without_data_is_no_record(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n")
    with pytest.raises(SystemExit) as left:
        main(["advise", "chats:1", "--check", str(page)])
    assert refused(left.value.code, *capsys.readouterr()) == f"{page}: it holds no data of `warmroute advise`"
