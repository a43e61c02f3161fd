"""The site that `make docs` builds: every page is in it once, links lead somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from markdown_it import MarkdownIt
from mkdocs.config import load_config

from docs.site.hooks import MARKS as SHOWN_MARKS
from docs.site.hooks import NEEDS
from tests.contract.pages import DOCS, ROOT, blocks, pages
from tests.contract.shell import MARKS
from tests.contract.site import COUNTED, Shown
from tests.contract.test_docs_links import LINK

OF_THE_PROJECT = {"project/CONTRIBUTING.md", "project/SECURITY.md", "project/CHANGELOG.md", "project/files.md"}
SECTIONS = {
    "how-to": "How-to",
    "reference": "Reference",
    "explanation": "Explanation",
    "tutorial": "Tutorial",
    "adr": "Project",
}
ABROAD = re.compile(r"^(?:[a-z]+:)?//")
GITHUB = MarkdownIt("commonmark").enable("table")


@pytest.fixture(scope="module")
def nav() -> dict[str, str]:
    """Page -> the section it is in."""
    with patch.dict(os.environ, {"NO_MKDOCS_2_WARNING": "1"}):
        tree = load_config(str(ROOT / "mkdocs.yml"))["nav"]
    found = [(uri, str(title)) for part in tree for title, below in part.items() for uri in _leaves(below)]
    assert [uri for uri, count in Counter(uri for uri, _ in found).items() if count > 1] == []
    return dict(found)


def _leaves(below: Any) -> Iterator[str]:
    if isinstance(below, str):
        yield below
        return
    for part in below:
        yield from _leaves(part if isinstance(part, str) else next(iter(part.values())))


def test_every_page_is_in_the_navigation_once(nav: dict[str, str]) -> None:
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert written - set(nav) == set()
    assert OF_THE_PROJECT <= {uri for uri in set(nav) - written if uri.startswith("project/")} == set(nav) - written


def test_navigation_and_index_agree(nav: dict[str, str]) -> None:
    linked = {target.partition("#")[0] for target in LINK.findall((DOCS / "index.md").read_text())}
    assert {target for target in linked if target.endswith(".md") and not target.startswith("..")} == {
        uri for uri in nav if not uri.startswith("project/") and uri != "index.md"
    }
    for uri, section in nav.items():
        folder = uri.partition("/")[0]
        assert section == SECTIONS.get(folder, section), uri


def test_every_page_is_built(site: dict[Path, Shown], site_folder: Path, nav: dict[str, str]) -> None:
    built = {file.relative_to(site_folder).with_suffix(".md").as_posix() for file in site}
    assert {uri.replace("README", "index") for uri in nav} - built == set()


def test_every_link_leads_somewhere(site: dict[Path, Shown]) -> None:
    wrong = []
    for file, shown in site.items():
        for target in shown.links:
            if ABROAD.match(target) or target.startswith("mailto:"):
                continue
            path, _, anchor = target.partition("#")
            there = (file.parent / path).resolve() if path else file
            if not there.is_file() or (anchor and there in site and anchor not in site[there].ids):
                wrong.append(f"{file.name}: {target}")
    assert wrong == []


def test_nothing_is_loaded_from_elsewhere(site: dict[Path, Shown], site_folder: Path) -> None:
    for file, shown in site.items():
        for tag, target in shown.loads:
            assert not ABROAD.match(target), f"{file.name}: {tag} {target}"
            assert target.startswith("data:") or (file.parent / target.partition("?")[0]).is_file(), (
                f"{file.name}: {target}"
            )
        assert "mermaid" not in shown.classes, f"{file.name}: its script would come from elsewhere"
    for sheet in site_folder.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", sheet.read_text()), sheet.name


def test_pages_are_made_of_what_github_makes_them_of(site: dict[Path, Shown], site_folder: Path) -> None:
    """A list that lacks a blank line before it is one on GitHub, and a paragraph here."""
    different = {}
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        if "```mermaid" in text:
            continue
        wanted = Counter(re.findall(r"<(\w+)", GITHUB.render(text)))
        found = site[site_folder / page.relative_to(DOCS).with_suffix(".html")].elements
        notes = Counter(p=sum(block.mark in NEEDS for block in blocks(page)))
        counts = {tag: (wanted[tag] + notes[tag], found[tag]) for tag in COUNTED - {"table", "tr", "pre"}}
        odd = {tag: pair for tag, pair in counts.items() if pair[0] != pair[1]}
        if odd:
            different[page.name] = odd
    assert different == {}


def test_marks_are_shown_as_notes_and_names_as_titles(site: dict[Path, Shown], site_folder: Path) -> None:
    assert SHOWN_MARKS == MARKS
    noted = site[site_folder / "how-to" / "real-vllm.html"]
    assert "needs" in noted.classes
    assert "Needs a GPU and vLLM." in noted.text
    assert "chat.py" in site[site_folder / "tutorial" / "first-fleet.html"].text
    for file, shown in site.items():
        assert "```" not in shown.text, file.name


def test_state_diagrams_are_drawn(site: dict[Path, Shown], site_folder: Path) -> None:
    drawn = [block for page in pages() for block in blocks(page) if block.language == "mermaid"]
    assert drawn
    for block in drawn:
        assert block.text.startswith("stateDiagram-v2"), f"{block}: docs/site/states.py draws no other"
        file = site_folder / block.page.relative_to(DOCS).with_suffix(".html")
        for label in re.findall(r"--> \S+: (.*)", block.text):
            for line in label.split(", or "):
                assert html.escape(line) in file.read_text(), label
