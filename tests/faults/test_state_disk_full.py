"""The state file's disk is full: the old file stays whole, one line says so, and the next write that can be is."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

from router.adapters.state_file import read
from tests.rig.client import chat
from tests.rig.served import Served, serving
from tests.rig.stage import Stage

LONG = chat("words that fill a block of the prompt " * 40)

LIMIT_BYTES = 500
"""Less than the state of one turn takes."""


def names(folder: Path) -> list[str]:
    return [found.name for found in folder.iterdir()]


async def stopped(served: Served) -> str:
    served.send(signal.SIGTERM)
    code, log = await served.ended()
    assert code == 0
    return log


async def test_the_old_file_stays_and_requests_go_on(stage: Stage, tmp_path: Path) -> None:
    replica, path = await stage.replica(), tmp_path / "warmroute.state"
    known = ("--replica", replica.url, "--no-log-requests", "--state-file", str(path))
    async with serving(*known) as served:
        assert (await stage.ask(served, LONG)).status == 200
        await stopped(served)
    before = path.read_bytes()
    assert len(before) > LIMIT_BYTES
    async with serving(*known, through=("prlimit", f"--fsize={LIMIT_BYTES}:unlimited")) as served:
        found = await served.line("state can't be kept in")
        assert found.string.endswith(f"{path}: File too large\n")
        assert await served.metric("warmroute_state_kept") == 0
        for _ in range(3):
            answer = await stage.ask(served, LONG)
            assert (answer.status, answer.reason) == (200, "warm"), "what the old file says is known"
        assert path.read_bytes() == before
        assert names(tmp_path) == [path.name], "no half of a new one is left"
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        log = await stopped(served)
    assert log.count("state can't be kept") == 1
    assert path.read_bytes() != before
    assert read(path) is not None, "what the end could write is whole"


async def test_an_end_that_can_write_nothing_says_so_and_leaves_the_old_file(stage: Stage, tmp_path: Path) -> None:
    replica, path = await stage.replica(), tmp_path / "warmroute.state"
    known = ("--replica", replica.url, "--no-log-requests", "--state-file", str(path))
    async with serving(*known) as served:
        assert (await stage.ask(served, LONG)).status == 200
        assert await served.metric("warmroute_state_kept") == 1
        await stopped(served)
    before = path.read_bytes()
    async with serving(*known) as served:
        assert (await stage.ask(served, chat("something else"))).status == 200
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
        log = await stopped(served)
    assert log.count(f"state can't be kept in {path}: File too large") == 1
    assert read(path) is not None
    assert names(tmp_path) == [path.name]
    assert len(path.read_bytes()) >= len(before)
