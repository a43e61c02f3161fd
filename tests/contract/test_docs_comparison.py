"""docs/explanation/comparison.md: its figures are those of the benchmarks' page, its versions those that were run."""

from __future__ import annotations

import re

import pytest

import router
from benchmarks import peers
from tests.contract.pages import DOCS, ROOT, codes, prose, section, table

PAGE = DOCS / "explanation" / "comparison.md"
FIGURES = table(PAGE, "In figures")
NUMBER = r"(?<![\w.])(?:\d[\d,]*)?\.?\d+(?![\w.]*\d)"


def numbers(text: str) -> set[str]:
    return {number.lstrip("0") or "0" for number in re.findall(NUMBER, text)}


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row[0])
def test_every_figure_is_one_of_the_benchmarks_page(row: tuple[str, ...]) -> None:
    measured = numbers((DOCS / "how-to" / "run-benchmarks.md").read_text())
    shown = numbers(row[1]) | numbers(row[2])
    assert shown
    assert shown <= measured


def test_every_command_is_a_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for row in FIGURES:
        (command,) = codes(row[3])
        assert command.split()[1] in targets


def test_the_versions_are_those_that_are_installed() -> None:
    shown = {row[0]: row[1] for row in table(PAGE, "How each finds the warm replica")}
    assert shown["Warmroute"] == router.__version__
    names = {"vLLM Router": "vllm-router", "SMG (Shepherd)": "smg", "SGLang router": "sglang-router"}
    for name, package in names.items():
        assert f"{package}=={shown[name]}" == peers.RUST_PACKAGES[package]


def test_the_readme_says_the_same_versions() -> None:
    readme = section(ROOT / "README.md", "Beside others")
    for row in table(PAGE, "How each finds the warm replica"):
        assert row[0] == "nginx" or row[1] in readme, row[0]


def test_everything_is_dated() -> None:
    assert "2026-11-30" in prose(PAGE)
    for row in table(PAGE, "How each finds the warm replica", 1):
        assert re.search(r"\d", row[1]), f"{row[0]} has neither version nor date"
