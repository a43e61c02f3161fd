"""The Dockerfile as instructions, and what .dockerignore lets through to it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.contract.pages import ROOT

FILE = ROOT / "deploy" / "container" / "Dockerfile"
IGNORE = ROOT / ".dockerignore"


@dataclass(frozen=True)
class Instruction:
    word: str
    text: str

    def listed(self) -> list[str]:
        """What its exec form says; the shell form fails the test."""
        words: list[str] = json.loads(self.text)
        return words

    def pairs(self) -> dict[str, str]:
        """What an ENV or LABEL sets."""
        return {name: value for name, _, value in (word.partition("=") for word in shlex.split(self.text))}


def instructions() -> list[Instruction]:
    lines = [line for line in FILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def last_stage() -> list[Instruction]:
    """What the image itself is made by."""
    found = instructions()
    begin = max(number for number, instruction in enumerate(found) if instruction.word == "FROM")
    return found[begin:]


def only(word: str, stage: list[Instruction]) -> Instruction:
    (found,) = [instruction for instruction in stage if instruction.word == word]
    return found


def copied() -> Iterator[str]:
    """The paths of the checkout that the build takes."""
    for instruction in instructions():
        if instruction.word in ("COPY", "ADD") and "--from" not in instruction.text:
            yield from instruction.text.split()[:-1]


def allowed() -> list[str]:
    """The paths that .dockerignore lets through: plain ones only, which every builder understands alike."""
    lines = [line for line in IGNORE.read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*", "everything is kept out that is not named"
    named = [line[1:] for line in lines if line.startswith("!")]
    assert not [path for path in named if set(path) & set("*?[")], "patterns after ! mean different things to builders"
    assert set(lines[1:]) - {f"!{path}" for path in named} == {"**/__pycache__"}
    return named


def path_of(named: str) -> Path:
    return ROOT / named
