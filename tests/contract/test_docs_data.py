"""Blocks that are not for a shell: Python, JSON, TOML, YAML and INI parse, and hold what the program takes."""

from __future__ import annotations

import ast
import configparser
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.adapters.discovery.file_format import read_replicas
from router.app.settings.sources import load
from tests.contract.pages import Block, all_blocks
from tests.contract.test_docs_commands import flags


def each(*languages: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [one for one in all_blocks() if one.language in languages], ids=str)


@each("python")
def test_python_parses(block: Block) -> None:
    ast.parse(block.text)


@each("json")
def test_json_parses(block: Block) -> None:
    json.loads(block.text)


@each("toml")
def test_toml_is_taken(block: Block, tmp_path: Path) -> None:
    """Replicas are for --discover, a name in ~ is another program's file, and all others are for --config."""
    if block.mark.startswith("~"):
        assert tomllib.loads(block.text)
    elif "replicas" in tomllib.loads(block.text):
        assert read_replicas(block.text.encode(), ".toml")
    else:
        file = tmp_path / "shown.toml"
        file.write_text(block.text)
        load({}, file)


@each("yaml", "yml")
def test_yaml_parses_and_our_arguments_in_it_exist(block: Block) -> None:
    for document in yaml.safe_load_all(block.text):
        for words in _arguments(document):
            given = [word.partition("=")[0] for word in words if word.startswith("--")]
            assert set(given) <= flags()[words[0]], words


def _arguments(document: Any) -> Iterator[list[str]]:
    """Lists of words that begin with one of our commands."""
    if isinstance(document, dict):
        for value in document.values():
            yield from _arguments(value)
    elif isinstance(document, list):
        words = [str(word) for word in document]
        if words and words[0] in flags():
            yield words
        for value in document:
            yield from _arguments(value)


@each("ini")
def test_ini_parses_and_our_commands_in_it_exist(block: Block) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(block.text)
    starts = [section["ExecStart"].split() for section in unit.values() if "ExecStart" in section]
    for program, command, *words in starts:
        if program.endswith("/warmroute"):
            assert {word for word in words if word.startswith("--")} <= flags()[command], words
