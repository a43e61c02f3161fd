"""What each cause of lost tokens means, in words: one text for the page and for the terminal."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

_FILE = Path(__file__).parent / "page" / "causes.js"


class Words(msgspec.Struct, frozen=True):
    """What people are told of one cause."""

    title: str
    meaning: str
    cure: str
    """What to do about it, in a sentence or two."""


@cache
def words_of_causes() -> dict[str, Words]:
    """Return the words for each cause: the JSON in the script that the page loads."""
    return msgspec.json.decode(_FILE.read_text().partition(" = ")[2].strip().rstrip(";"), type=dict[str, Words])
