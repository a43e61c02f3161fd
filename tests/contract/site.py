"""Reads pages of the built site."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

LOADS = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
COUNTED = {"li", "table", "tr", "pre", "blockquote", "em", "strong", "h2", "h3", "p"}
"""What Python-Markdown sees in other places than GitHub where a blank line or an indent is missing."""


@dataclass
class Shown:
    """One page: where it leads, what it loads, and what its text is made of."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[tuple[str, str]] = field(default_factory=list)
    elements: Counter[str] = field(default_factory=Counter)
    """Of the article alone."""
    classes: set[str] = field(default_factory=set)
    text: str = ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.shown = Shown()
        self._inside = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        shown = self.shown
        shown.ids.update([given["id"]] if "id" in given else [])
        shown.classes.update(given.get("class", "").split())
        if tag == "article":
            self._inside += 1
        if tag == "a" and "href" in given:
            shown.links.append(given["href"])
        if tag in LOADS and LOADS[tag] in given:
            shown.loads.append((tag, given[LOADS[tag]]))
        if self._inside:
            shown.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._inside -= 1

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.shown.text += data


def read(file: Path) -> Shown:
    reader = _Reader()
    reader.feed(file.read_text())
    return reader.shown
