"""`warmroute demo`, shortened: it ends with the table, and leaves nothing behind however it ends."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

END_DEADLINE_S = 40.0


@contextlib.contextmanager
def demo(*arguments: str, ignoring: str = "") -> Iterator[subprocess.Popen[str]]:
    """A running demo that leads its own process group, so that what it leaves behind can be seen, and ended.

    Signals that it starts with ignored, as a script's background job does, are named in `ignoring`.
    """
    process = subprocess.Popen(
        ["sh", "-c", f"trap '' {ignoring}; exec \"$@\"" if ignoring else 'exec "$@"', "sh"]
        + [sys.executable, "-m", "router", "demo", *arguments],
        env=os.environ | {"COLUMNS": "100", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def running_in_group(group: int) -> list[str]:
    """Return what still runs in a process group; a zombie that nobody has reaped yet does not."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = stat.read_text()
            state, _, of_group = text.rpartition(") ")[2].split()[:3]
            if int(of_group) == group and state not in "ZX":
                found.append(text)
    return found


def assert_nothing_left(process: subprocess.Popen[str]) -> None:
    """The demo waits for its children, but the kernel may take a moment to end them."""
    deadline_s = time.monotonic() + END_DEADLINE_S
    looked = threading.Event()
    while left := running_in_group(process.pid):
        assert time.monotonic() < deadline_s, left
        looked.wait(0.02)


def read_until(stream: IO[str] | None, pattern: str) -> re.Match[str]:
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"{pattern!r} is not in: {''.join(seen)}")


def figures(output: str, label: str) -> list[float]:
    row = re.search(rf"^ *{re.escape(label)}.*?((?: +[0-9.]+)+) *$", output, re.MULTILINE)
    assert row, output
    return [float(figure) for figure in row[1].split()]


def test_the_demo_compares_both_policies_and_ends() -> None:
    with demo("--seconds", "5") as process:
        output, _ = process.communicate(timeout=END_DEADLINE_S)
        assert process.returncode == 0, output
        assert_nothing_left(process)
    assert re.search(r"Warmroute +round robin", output)
    warm, round_robin = figures(output, "hit rate (prompt tokens found in cache)")
    pooled, _ = figures(output, "one pooled cache of the fleet's size")
    assert round_robin < warm <= pooled + 0.01  # the pool sees requests in the order of their ends
    assert len(figures(output, "TTFT p50, s")) == len(figures(output, "TTFT p95, s")) == 2
    answered = figures(output, "requests answered")
    assert sum(figures(output, "requests per replica")) == sum(answered)
    assert "of the pooled cache's, 0.95 or more wanted" in output
    assert re.search(r"worse than +round +robin's", " ".join(output.split()))
    assert "failed" not in output
    assert "make demo KEEP=1" in output


def test_kept_running_the_router_serves_until_ctrl_c() -> None:
    with demo("--seconds", "2", "--keep") as process:
        clients = read_until(process.stdout, r"clients +(http://\S+)/v1")[1]
        admin = read_until(process.stdout, r"admin +(http://\S+)/ ")[1]
        read_until(process.stdout, "5 times life's speed")
        overview = httpx.get(f"{admin}/api/overview", trust_env=False).json()
        assert list(overview["models"]) == ["sim-model"]
        body = {"model": "sim-model", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
        answer = httpx.post(f"{clients}/v1/chat/completions", json=body, trust_env=False)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 5
        assert "warmroute_requests_total" in httpx.get(f"{admin}/metrics", trust_env=False).text
        process.send_signal(signal.SIGINT)
        assert process.wait(END_DEADLINE_S) == 0
        assert_nothing_left(process)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_kept_running_by_a_script_it_ends_all_the_same(number: signal.Signals, code: int) -> None:
    """What a script starts with & ignores SIGINT from its beginning."""
    with demo("--seconds", "2", "--keep", ignoring="INT TERM") as process:
        read_until(process.stdout, f"kill {process.pid}")
        read_until(process.stdout, "life's speed")
        process.send_signal(number)
        assert process.wait(END_DEADLINE_S) == code
        assert_nothing_left(process)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_in_the_middle_ends_every_process(number: signal.Signals, code: int) -> None:
    with demo("--seconds", "60") as process:
        read_until(process.stdout, "Multi-turn chats")
        process.send_signal(number)
        assert process.wait(END_DEADLINE_S) == code
        assert_nothing_left(process)
