"""CONTRIBUTING's worked example works, and the places it sends people to are those where such a thing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import router
from router.adapters.discovery.polled import Polled
from router.adapters.discovery.trouble import Unreadable
from tests.adapters.discovery.hearing import hearing
from tests.contract.pages import ROOT, blocks, section

PAGE = ROOT / "CONTRIBUTING.md"
PACKAGE = Path(router.__file__).parent


async def test_the_adapter_of_the_example_follows_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in blocks(PAGE) if block.language == "python"]
    names: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec"), names)
    reader = names["Environment"]("TRIED")
    with pytest.raises(Unreadable, match="TRIED"):
        await reader.read()
    monkeypatch.setenv("TRIED", "no:url")
    with pytest.raises(Unreadable, match="no:url"):
        await reader.read()
    monkeypatch.setenv("TRIED", "http://a:8000 https://b")
    async with hearing(Polled("env:TRIED", reader, 0.0)) as heard:
        await heard.these("http://a:8000", "https://b:443")
        monkeypatch.setenv("TRIED", "http://c:1")
        await heard.these("http://c:1")


@pytest.mark.parametrize(
    ("heading", "word", "folder"),
    [("Add a term to the price", "streams_s", "."), ("Add a fault", "FaultKind.", "sim")],
)
def test_it_names_every_file_that_has_such_a_thing(heading: str, word: str, folder: str) -> None:
    text = section(PAGE, heading)
    files = [file for file in (PACKAGE / folder).rglob("*") if file.suffix in {".py", ".js"}]
    having = [file for file in files if word in file.read_text()]
    assert having
    for file in having:
        assert file.name in text, file
