"""`warmroute key` makes keys that open a router started with their file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.client import chat, request
from tests.rig.stage import Stage


def run(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "router", "key", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture(scope="module")
def made() -> subprocess.CompletedProcess[str]:
    return run("alice", "--requests-per-minute", "2")


def test_the_key_is_shown_apart_from_the_files_lines(made: subprocess.CompletedProcess[str]) -> None:
    assert made.returncode == 0
    key = made.stderr.split()[-1]
    assert key.startswith("wr-")
    assert key not in made.stdout
    assert made.stdout.startswith("[keys.alice]\nsha256 = ")
    assert "requests_per_minute = 2" in made.stdout


async def test_a_key_that_was_made_opens_and_has_its_limit(
    stage: Stage, tmp_path: Path, made: subprocess.CompletedProcess[str]
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(made.stdout + run("team-b", "--stdin", given="an-older-key\n").stdout)
    router = await stage.router(await stage.replica(), api_keys_file=path)
    client = await stage.client(router)
    alice = [("authorization", f"Bearer {made.stderr.split()[-1]}")]
    assert [(await client.ask(chat(headers=alice))).status for _ in range(3)] == [200, 200, 429]
    assert (await client.ask(chat(headers=[("x-api-key", "an-older-key")]))).status == 200
    assert (await client.ask(request("/v1/models", headers=alice))).status == 200


@pytest.mark.parametrize(("arguments", "given"), [(("a b",), None), (("alice", "--stdin"), "\n")])
def test_what_makes_no_key_is_said_in_one_line(arguments: tuple[str, ...], given: str | None) -> None:
    result = run(*arguments, given=given)
    assert result.returncode == 2
    assert result.stderr.startswith("warmroute: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
