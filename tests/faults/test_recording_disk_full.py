"""The disk of a recording is full, its file is deleted, its folder goes: one line says so, and no request notices."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
from pathlib import Path

from tests.rig.client import chat
from tests.rig.served import serving
from tests.rig.stage import Stage

LONG = chat("words that fill a block of the prompt " * 20)

LIMIT_BYTES = 2_000
"""A handful of lines."""

WRITTEN = 'warmroute_recorded_requests_total{result="written"}'
DROPPED = 'warmroute_recorded_requests_total{result="dropped"}'


async def test_a_full_disk_costs_no_request_and_is_said_once(stage: Stage, tmp_path: Path) -> None:
    replica, path = await stage.replica(), tmp_path / "traffic"
    small = ("prlimit", f"--fsize={LIMIT_BYTES}:unlimited")
    async with serving("--replica", replica.url, "--no-log-requests", "--record", str(path), through=small) as served:
        client = await stage.client(served)
        for _ in range(20):
            assert (await client.ask(LONG)).status == 200
        found = await served.line("can't be recorded")
        assert "File too large" in found.string
        assert await served.metric("warmroute_recording") == 0
        assert (await served.admin("GET", "/api/overview")).json()["recording"]["trouble"] == "File too large"
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert await served.metric(DROPPED) > 0
        assert (await client.ask(LONG)).status == 200
        await served.line("are recorded in .* again")
        assert await served.metric(WRITTEN) > 0
        assert await served.metric("warmroute_recording") == 1
        served.send(signal.SIGTERM)
        code, log = await served.ended()
    assert code == 0
    assert log.count("can't be recorded") == log.count("are recorded in") == 1
    lines = [json.loads(line) for line in (await asyncio.to_thread(path.read_text)).splitlines()]
    assert all("timestamp" in line for line in lines[1:]), "no line is cut"
    assert not path.with_name("traffic.1").exists(), "an attempt that fails pushes no older file out"


async def test_a_file_that_is_deleted_is_begun_anew(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "traffic"
    router = await stage.router(await stage.replica(), record=path)
    counts = router.house.recording.counts
    for number in (1, 2):
        await stage.ask(router, LONG)
        await router.idle()
        await router.until(lambda: counts.written == number)  # noqa: B023
        assert len((await asyncio.to_thread(path.read_text)).splitlines()) == 2
        await asyncio.to_thread(path.unlink)
    assert (counts.dropped, counts.trouble) == (0, None)


async def test_a_folder_that_is_missing_is_said_at_the_start(stage: Stage, tmp_path: Path) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--record", str(tmp_path / "missing" / "traffic")) as served:
        await served.line("can't be recorded in .*: .* is no folder that can be written to")
        assert (await stage.ask(served, LONG)).status == 200
