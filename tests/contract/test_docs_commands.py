"""Shell blocks of all Markdown: what they name exists. test_docs_run.py runs them.

A word behind the language says what a block needs, and so whether it is run:

- `run` nothing: it is run in an empty folder.
- `fleet` a router on 8080 with its admin port on 9090 and a replica on 8000, all in the test's process. The page's
  Python blocks belong to it.
- `host` hosts with the names and addresses that it uses, among which the reader has a machine (reader.py). The page's
  blocks are run there in order, as in one terminal: exports stay, and so do `warmroute serve`, `warmroute sim` and
  `prometheus`. Such a command does not end, so it counts as done when it is ready (/readyz says 200; all replicas are
  up at the end of its block), and it is left running until another of its kind starts or the page ends. Then it gets
  SIGTERM and must exit with 0.
- `demo` a minute, `checkout` more time than a test has, in the checkout: what make would do is looked at, not done.
- `gpu` a GPU or a real vLLM, `cluster` Kubernetes, `docker` a Docker engine, `internet` to download something: not run.

What they all name is looked up: commands, flags, make targets, benchmarks' options, files, services, extras. A block of
another language with a file's name behind it is that file: Python's are written where the page's commands are run,
those in /etc onto the reader's machine, those in ~ belong to other programs and have to parse (test_docs_data.py).
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
import typer.main
import yaml

from router.app.cli import app
from router.app.settings.model import Settings
from router.app.settings.sources import CONFIG_VARIABLE, variable_of
from tests.contract.pages import DOCS, ROOT, Block, blocks, codes, pages, prose, tables
from tests.contract.shell import MARKS, SHELL, commands

OTHERS_FLAGS = {
    *("--kv-offloading-size", "--served-model-name"),  # vLLM's, beside those of docs/how-to/vllm-flags.md
    *("--gpu-memory-utilization", "--max-model-len", "--kv-cache-dtype"),
    *("--enable-mesh", "--session-key", "--routing-logic"),  # SMG's, production-stack's
    *("--continue", "--last"),  # Claude Code's, Codex'
    *("--help", "--long"),  # everybody's, zstd's
    *("--build-arg", "--sbom", "--stop-timeout", "--upgrade"),  # docker's, and uv's behind make lock
    *("--detach", "--env-file", "--no-recreate", "--profile", "--scale", "--wait"),  # docker compose's
    *("--max-num-batched-tokens", "--block-size", "--scheduling-policy", "--enable-prefix-caching"),  # tune.md
    *(
        "--no-enable-prefix-caching",
        "--service-discovery",
        "--static-backends",
        "--static-models",
    ),  # production-stack's
    *("--static-aliases", "--static-backend-health-checks", "--static-model-types", "--k8s-namespace", "--k8s-port"),
    *("--k8s-label-selector", "--k8s-service-discovery-type", "--routing-logic", "--engine-stats-interval"),
    *("--request-stats-window", "--log-stats", "--dynamic-config-yaml", "--max-instance-failover-reroute-attempts"),
    *("--otel-endpoint", "--callbacks", "--request-rewriter", "--feature-gates", "--enable-batch-api", "--sentry-dsn"),
}
OTHERS_VARIABLES = {"VLLM_PYTHON"}
"""Read by the tests alone."""

OURS = ["warmroute", "serve"]
OF_THE_CHECKOUT = re.compile(r"(?:benchmarks|deploy|docs|release|router|tests)/[\w./*-]+")

each_shell_block = pytest.mark.parametrize("block", SHELL, ids=str)


@cache
def flags() -> dict[str, set[str]]:
    """Command -> its flags; "" for the program's own."""
    group = typer.main.get_command(app)
    found = {"": {"--version", "--help", "-h"}}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        options = [*(flag for option in command.params for flag in (*option.opts, *option.secondary_opts))]
        found[name] = {*options, "--help", "-h"}
    return found


@cache
def vllm_flags() -> set[str]:
    (table,) = tables(prose(DOCS / "how-to" / "vllm-flags.md"))
    return {flag for row in table for flag in _flags(row[0])}


def test_every_block_says_what_it_needs() -> None:
    assert len(SHELL) > 60
    assert [str(block) for block in SHELL if block.mark not in MARKS] == []
    assert {block.mark for block in SHELL} == MARKS


def test_no_block_is_hidden_in_a_list() -> None:
    """blocks() does not see it there, and the site shows it as a paragraph."""
    assert [str(page) for page in pages() if re.search(r"^ +```", page.read_text(), re.MULTILINE)] == []


@each_shell_block
def test_it_parses(block: Block) -> None:
    shell = "bash" if block.language == "bash" else "sh"
    outcome = subprocess.run([shell, "-n"], input=block.text, text=True, capture_output=True, check=False)
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
def test_files_of_the_checkout_exist(block: Block) -> None:
    for words in commands(block):
        for word in words:
            if OF_THE_CHECKOUT.fullmatch(word):
                assert list(ROOT.glob(word)), words


MAKES = [(block, words) for block in SHELL for words in commands(block) if words[0] == "make"]


@pytest.mark.parametrize("words", {" ".join(words): words for _, words in MAKES}.values(), ids=" ".join)
def test_make_knows_what_to_do(words: list[str]) -> None:
    """`make -n` says what it would do, and nothing is done."""
    outcome = subprocess.run(
        ["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout
    if words[1:] and words[1].startswith("bench-"):
        benchmarks = "".join(file.read_text() for file in (ROOT / "benchmarks").glob("*.py"))
        for flag in _flags(" ".join(words)):
            assert re.search(rf'"(--)?{flag.removeprefix("--")}"', benchmarks), f"no benchmark has {flag}"


@each_shell_block
def test_flags_of_vllm_are_in_the_table(block: Block) -> None:
    for words in commands(block):
        if words[:2] == ["vllm", "serve"]:
            assert set(_flags(" ".join(words))) <= vllm_flags() | OTHERS_FLAGS | {"--port", "--host"}, words


@each_shell_block
def test_services_and_profiles_of_compose_exist(block: Block) -> None:
    for words in commands(block):
        if words[:2] != ["docker", "compose"]:
            continue
        services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        profiles = {profile for service in services.values() for profile in service.get("profiles", [])}
        for before, word in zip(words, words[1:], strict=False):
            assert before != "--profile" or word in profiles, words
            assert before not in {"exec", "logs", "restart", "stop", "start"} or word in services, words


@each_shell_block
def test_extras_that_pip_is_asked_for_exist(block: Block) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for words in commands(block):
        if "pip" in words and "install" in words:
            for asked in re.findall(r"(?:\.|warmroute)\[([\w,]+)\]", " ".join(words)):
                assert set(asked.split(",")) <= set(extras), words


def test_every_flag_named_in_prose_exists() -> None:
    ours = set().union(*flags().values())
    scripts = "".join(file.read_text() for file in (ROOT / "benchmarks").glob("*.py"))
    for page in pages():
        for piece in codes(prose(page)):
            of_a_benchmark = page.parent.name == "benchmarks" or piece.startswith("make bench-")
            for flag in _flags(piece):
                known = flag in ours | vllm_flags() | OTHERS_FLAGS or (of_a_benchmark and flag in scripts)
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


def test_the_readme_shows_a_flag_a_variable_and_a_file() -> None:
    serves = [words for block in blocks(ROOT / "README.md") for words in commands(block) if words[:2] == OURS]
    assert any("--replica" in words for words in serves)
    assert any("--config" in words for words in serves)
    assert any("WARMROUTE_REPLICA=" in block.text for block in blocks(ROOT / "README.md"))
