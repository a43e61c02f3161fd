"""Blocks are run as readers would: in order, page by page. test_docs_commands.py says what their marks mean."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.pages import Block, all_blocks, blocks
from tests.contract.reader import Reader
from tests.contract.shell import SHELL
from tests.deploy.tools import program
from tests.rig.inside import Ran
from tests.rig.network import require_network
from tests.rig.sharing import eventually
from tests.rig.stage import Stage

PAGE_DEADLINE_S = 50.0
PYTHON = [block for block in all_blocks() if block.language == "python"]
FLEET_PAGES = sorted({block.page for block in SHELL if block.mark == "fleet"} | {block.page for block in PYTHON})
HOST_PAGES = sorted({block.page for block in SHELL if block.mark == "host"})
UP = {"joining", "ready", "draining"}

EXPECTED = {
    ("first-fleet", 1): r"x-warmroute-decision: keyless",
    ("first-fleet", 2): r"(?s)new prompt 1614 predicted 0 cached 0.*warm .* predicted (\d+) cached \1\n.*warm",
    ("first-fleet", 3): r'"mirror"',
    ("first-fleet", 4): r'"reason": "warm"',
    ("first-fleet", 5): r"failover prompt 1614 predicted 0 cached 0\n.* (\d+) cached \1\n.* (\d+) cached \2\n",
    ("sessions", 1): r"(?s)decision: keyless.*decision: session",
    ("keeping-sessions-warm", 1): r"vllm:prefix_cache_hits_total",
    ("troubleshoot", 1): r'"scores"',
    ("watch-from-a-terminal", 1): r"from cache",
    ("explain-a-request", 4): r"(?s)turn 2  loses 1.* of 1.*stamped.*\nturn 2 would lose",
}
"""What the fleet blocks print, where the page says so."""


def environment() -> dict[str, str]:
    """Without settings, and with `warmroute` and `python3` of this environment first."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    return clean | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}", "COLUMNS": "100"}


@pytest.mark.parametrize("block", [block for block in SHELL if block.mark == "run"], ids=str)
def test_what_costs_nothing_runs(block: Block, tmp_path: Path) -> None:
    outcome = subprocess.run(
        ["sh", "-eu", "-c", block.text], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("page", FLEET_PAGES, ids=lambda page: page.stem)
async def test_what_needs_a_fleet_runs_on_one(page: Path, stage: Stage, tmp_path: Path) -> None:
    """All blocks of the page in order, in one folder: a shell for each, one Python for those with no shell between.

    A Python that comes after a shell does again what the Python before has done, for it needs its names.
    """
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    replicas = await stage.replicas(4, time_scale=50.0)
    router = await stage.router(*replicas, watched=True)
    admin = await router.admin()
    await router.until(lambda: len(router.house.models.merged()["data"]) == 1)  # type: ignore[arg-type]
    ports = {"8080": str(router.port), "9090": str(admin.base_url.port), "8000": str(replicas[0].port)}
    python: list[Block] = []
    waits = False
    for block in [*blocks(page), None]:
        if waits and (block is None or block.mark == "fleet"):
            await run(python[-1], [sys.executable, "-c", _at_home(_in_place(python), ports)], tmp_path)
            waits = False
        if block is None:
            break
        if block.language == "python" and block.mark:
            (tmp_path / block.mark).write_text(_at_home(block.text, ports))
        elif block.language == "python":
            python.append(block)
            waits = True
        elif block.mark == "fleet":
            text = _at_home(block.text, ports).replace(".venv/bin/python", sys.executable)
            await run(block, ["sh", "-eu", "-c", text], tmp_path)


def _in_place(python: list[Block]) -> str:
    """One text in which each block is in the lines that it has on the page, for the sake of tracebacks."""
    text = ""
    for block in python:
        text += "\n" * (block.line - text.count("\n")) + block.text
    return text


def _at_home(text: str, ports: dict[str, str]) -> str:
    """The ports that pages speak of are free ones here."""
    return re.sub(r"(?<=127\.0\.0\.1:)(\d+)", lambda found: ports.get(found[0], found[0]), text)


async def run(block: Block, command: list[str], folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), PAGE_DEADLINE_S)
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode == 0, f"{block}\n{output.decode()}\n{errors.decode()}"
    for name, pattern in EXPECTED.items():
        if name == (block.page.stem, _number_of(block)):
            assert re.search(pattern, output.decode()), f"{block}\n{output.decode()}"


def _number_of(block: Block) -> int:
    """Which of its page's blocks with that mark it is, from 1."""
    alike = [other for other in blocks(block.page) if (other.language, other.mark) == (block.language, block.mark)]
    return alike.index(block) + 1


def test_each_expectation_has_its_block() -> None:
    for stem, number in EXPECTED:
        (page,) = [page for page in FLEET_PAGES if page.stem == stem]
        assert number <= sum(block.mark == "fleet" for block in blocks(page))


@pytest.mark.parametrize("page", HOST_PAGES, ids=lambda page: page.stem)
async def test_what_needs_hosts_runs_among_them(page: Path, stage: Stage, tmp_path: Path) -> None:
    """All blocks of the page in order, one shell for each. What they start serves, and ends in order."""
    require_network()
    if any(re.search(r"\b(prometheus --|promtool)", block.text) for block in blocks(page)):
        program("prometheus")
    async with contextlib.AsyncExitStack() as stack:
        reader = Reader(page, tmp_path, stage, stack)
        await reader.ready()
        for block in blocks(page):
            if block.mark == "host":
                _succeeded(await reader.run(block), block)
                if "warmroute serve" in block.text:
                    await _until_all_up(reader, block)
        _succeeded(await reader.leave(), page)


async def _until_all_up(reader: Reader, block: Block) -> None:
    fleet: dict[str, str] = {}

    async def looked() -> bool:
        nonlocal fleet
        fleet = await reader.fleet()
        return set(fleet.values()) <= UP

    try:
        await eventually(looked, "not all are up")
    except AssertionError as error:
        raise AssertionError(f"{block}: {fleet}") from error


def _succeeded(ran: Ran, where: Block | Path) -> None:
    assert ran.code == 0, f"{where}\n{ran.out}\n{ran.err}"
