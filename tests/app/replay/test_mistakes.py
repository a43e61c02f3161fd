"""What can't be replayed is said in one line, with exit code 2, before anything runs."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from router.app.cli import main
from tests.app.replay.commands import EXCERPT, refused, replay

NO_NUMBER = "is no number above 0, such as 8, 1.5, 200k or 1.25M"

MOONCAKE = '{"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
CODING = (
    '{"id": "a", "block_size": 64, "requests": [{"t": 3.0, "type": "n", "in": 20000, "out": 1, "hash_ids": [[1, 3]], '
    '"stop": ""}]}\n'
)


Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run the command in this process; gives the line that it ends with."""

    def run(*arguments: str | Path) -> str:
        with pytest.raises(SystemExit) as left:
            main(["replay", *map(str, arguments)])
        return refused(left.value.code, *capsys.readouterr())

    return run


def packed(data: bytes) -> bytes:
    """As a file, but without the time: it would be in the test's name."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((EXCERPT, "--closed"), "--closed: the trace names no sessions, so nobody can wait for an answer"),
        ((EXCERPT, "--live", "3"), "--live is for coding agents; this trace has time stamps: see --rate-scale"),
        ((EXCERPT, "--warm-up", "15.1"), "--warm-up 15.1: the trace is over before that"),
        ((EXCERPT, "--block-tokens", "16"), "--block-tokens 16: the trace has blocks of 512 tokens"),
        ((EXCERPT, "--html", "no/where.html"), "can't write no/where.html: there is no directory no"),
        (("chats:1", "--closed"), "--closed and --live are for recorded sessions, not for chats:RATE"),
        (("chats:fast",), "chats:RATE: 'fast' " + NO_NUMBER),
        (("chats:1", "--kv-tokens", "-3"), "--kv-tokens: '-3' " + NO_NUMBER),
        (("chats:1", "--kv-tokens", "33.5"), "--kv-tokens: '33.5' is no whole number"),
        (("chats:1", "--speeds", "1,x"), "--speeds: 'x' " + NO_NUMBER),
        (("chats:1", "--sweep", "speed=3"), "--sweep: 'speed=3' is neither kv-tokens="),
        (("chats:1", "--sweep", "replicas="), "--sweep replicas: '' " + NO_NUMBER),
        (("chats:1", "--replicas", "0"), "Invalid value for '--replicas'"),
        (("chats:1", "--model-profile", "abacus"), "--model-profile: there is no 'abacus'; there are default, "),
        (("chats:1", "--policy", "best"), "--policy: there is no 'best'; there are affinity, "),
        (("nothing.jsonl",), "can't read nothing.jsonl: No such file or directory"),
        ((), "Missing argument 'TRACE'"),
    ],
)  # fmt: skip
def test_arguments(
    arguments: tuple[str | Path, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(*arguments).startswith(told)


@pytest.mark.parametrize(
    ("content", "arguments", "told"),
    [
        (b"", (), "line 1: the trace is empty"),
        (b"hello\n", (), "line 1: no JSON object: "),
        (MOONCAKE.encode() + b"{}\n", (), "line 2: Object missing required field `timestamp`"),
        (packed(MOONCAKE.encode() * 2 + b"{}\n"), (), "line 3: Object missing required field `timestamp`"),
        (CODING.encode(), ("--rate-scale", "2"), "--rate-scale: coding agents come when the one before has gone; "),
        (CODING.encode(), ("--kv-tokens", "10k"), "no request of the trace fits into half a cache of 10000 tokens"),
    ],
)
def test_files(content: bytes, arguments: tuple[str, ...], told: str, tmp_path: Path, said: Said) -> None:
    trace = tmp_path / "trace"
    trace.write_bytes(content)
    assert said(trace, *arguments).removeprefix(f"{trace}, ").startswith(told)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe\x00", "is no text in UTF-8"),
        (packed(MOONCAKE.encode() * 99)[:-20], "is no whole gzip file: "),
        (packed(MOONCAKE.encode() * 99)[:20] + b"\xff" * 40, "is no whole gzip file: "),
    ],
)
def test_what_is_no_text(content: bytes, told: str, tmp_path: Path, said: Said) -> None:
    trace = tmp_path / "trace"
    trace.write_bytes(content)
    assert told in said(trace)


def test_a_process_says_it_in_one_line_too() -> None:
    outcome = replay(EXCERPT, "--closed")
    assert refused(outcome.returncode, outcome.stdout, outcome.stderr).startswith("--closed: ")
