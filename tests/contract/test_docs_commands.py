"""Shell and Python blocks of all Markdown: they parse, what they name exists, and those that cost little are run.

A word behind the language says what a block needs: `sh run` nothing, `sh fleet` a router on 8080 with its admin port on
9090 and a replica on 8000 (the page's Python blocks belong to it), `sh demo` a minute, `sh gpu` a GPU or a real vLLM.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

from router.app.cli import app
from router.app.settings.model import Settings
from router.app.settings.sources import CONFIG_VARIABLE, variable_of
from tests.contract.pages import DOCS, ROOT, Block, all_blocks, blocks, codes, pages, prose, tables
from tests.rig.stage import Stage

SHELL = [block for block in all_blocks() if block.language in ("sh", "shell", "bash")]
MARKS = {"", "run", "fleet", "demo", "gpu"}
OTHERS_FLAGS = {
    *("--kv-offloading-size", "--served-model-name"),  # vLLM's, beside those of docs/how-to/vllm-flags.md
    *("--gpu-memory-utilization", "--max-model-len", "--kv-cache-dtype"),
    *("--enable-mesh", "--help"),
}
OTHERS_VARIABLES = {"VLLM_PYTHON"}
"""Read by the tests alone."""

OURS = ["warmroute", "serve"]
PAGE_DEADLINE_S = 50.0
FLEET_PAGES = sorted({block.page for block in SHELL if block.mark == "fleet"})

each_shell_block = pytest.mark.parametrize("block", SHELL, ids=str)


def commands(block: Block) -> Iterator[list[str]]:
    """The simple commands of a block, as words. Quotes are resolved, substitutions are not."""
    text = re.sub(r"\\\n", " ", block.text)
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        try:
            found = list(lexer)
        except ValueError:  # a quoted text that goes on in the next line
            continue
        for word in [*found, ";"]:
            if set(word) <= set(";|&()"):
                if words:
                    yield words
                words = []
            elif words or not re.match(r"\w+=", word):  # variables before a command are looked at elsewhere
                words.append(word)


@cache
def flags() -> dict[str, set[str]]:
    """Command -> its flags; "" for the program's own."""
    group = typer.main.get_command(app)
    found = {"": {"--version", "--help", "-h"}}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        options = [*(flag for option in command.params for flag in (*option.opts, *option.secondary_opts))]
        found[name] = {*options, "--help", "-h"}
    return found


def test_there_are_blocks_to_check() -> None:
    assert len(SHELL) > 15
    assert {block.mark for block in SHELL} == MARKS


@each_shell_block
def test_it_parses(block: Block) -> None:
    outcome = subprocess.run(["sh", "-n"], input=block.text, text=True, capture_output=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@each_shell_block
def test_our_commands_and_their_flags_exist(block: Block) -> None:
    for words in commands(block):
        if Path(words[0]).name != "warmroute":
            continue
        command = "" if len(words) < 2 or words[1].startswith("-") else words[1]
        assert command in flags(), words
        for word in words[1:]:
            assert not word.startswith("-") or word.partition("=")[0] in flags()[command], words


@each_shell_block
def test_make_targets_and_scripts_exist(block: Block) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(block):
        if words[0] == "make":
            asked = [word for word in words[1:] if "=" not in word]
            assert asked and set(asked) <= targets, words
        for word in words:
            if re.fullmatch(r"(?:benchmarks|tests)/[\w/]+\.py", word):
                assert (ROOT / word).is_file(), words


def test_every_flag_named_in_prose_exists() -> None:
    ours = set().union(*flags().values())
    (vllm_table,) = tables(prose(DOCS / "how-to" / "vllm-flags.md"))
    vllms = {flag for row in vllm_table for flag in _flags(row[0])}
    scripts = "".join(file.read_text() for file in (ROOT / "benchmarks").glob("*.py"))
    for page in pages():
        for piece in codes(prose(page)):
            of_a_benchmark = page.parent.name == "benchmarks" or piece.startswith("make bench-")
            for flag in _flags(piece):
                known = flag in ours | vllms | OTHERS_FLAGS or (of_a_benchmark and flag in scripts)
                assert known, f"{page.relative_to(ROOT)}: {flag}"


def _flags(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)


def test_every_variable_of_ours_exists() -> None:
    known = {variable_of(name) for name in Settings.model_fields} | {CONFIG_VARIABLE} | OTHERS_VARIABLES
    for page in pages():
        if page.name in {"0003-settings.md", "settings.md"}:
            continue  # they speak of variables that Kubernetes makes
        for variable in re.findall(r"\bWARMROUTE_[A-Z_]+[A-Z]\b", page.read_text()):
            assert variable in known, f"{page.relative_to(ROOT)}: {variable}"


@pytest.mark.parametrize("block", [block for block in all_blocks() if block.language == "python"], ids=str)
def test_python_parses(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", [block for block in all_blocks() if block.language == "json"], ids=str)
def test_json_parses(block: Block) -> None:
    json.loads(block.text)


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
    """All blocks of the page in order, one shell and one Python for each, in one folder."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    replicas = await stage.replicas(4, time_scale=50.0)
    router = await stage.router(*replicas, watched=True)
    admin = await router.admin()
    await router.until(lambda: len(router.house.models.merged()["data"]) == 1)  # type: ignore[arg-type]
    ports = {"8080": str(router.port), "9090": str(admin.base_url.port), "8000": str(replicas[0].port)}
    python_so_far = ""
    for block in blocks(page):
        text = re.sub(r"(?<=127\.0\.0\.1:)(\d+)", lambda found: ports.get(found[0], found[0]), block.text)
        if block.language == "python" and block.mark:
            (tmp_path / block.mark).write_text(text)
        elif block.language == "python":
            python_so_far += text
            await run(block, [sys.executable, "-c", python_so_far], tmp_path)
        elif block.mark == "fleet":
            text = text.replace(".venv/bin/python", sys.executable)
            await run(block, ["sh", "-eu", "-c", text], tmp_path)


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
    ("explain-a-request", 3): r"(?s)turn 2  loses 1.* of 1.*stamped.*\nturn 2 would lose",
}
"""What the fleet blocks print, where the page says so."""


def test_each_expectation_has_its_block() -> None:
    for stem, number in EXPECTED:
        (page,) = [page for page in FLEET_PAGES if page.stem == stem]
        assert number <= sum(block.mark == "fleet" for block in blocks(page))


def test_the_readme_shows_a_flag_a_variable_and_a_file() -> None:
    serves = [words for block in blocks(ROOT / "README.md") for words in commands(block) if words[:2] == OURS]
    assert any("--replica" in words for words in serves)
    assert any("--config" in words for words in serves)
    assert any("WARMROUTE_REPLICA=" in block.text for block in blocks(ROOT / "README.md"))
