"""README's picture: drawn by the script, from a decision of the core's."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from docs.images.draw.scene import play
from docs.images.draw.svg import draw
from tests.contract.pages import DOCS, ROOT

PICTURE = DOCS / "images" / "warm-replica.svg"


def test_it_is_what_the_script_draws() -> None:
    assert PICTURE.read_text() == draw(play()), "make picture"


def test_it_shows_what_its_words_say() -> None:
    """The chosen replica holds the history, is busy, could answer first all the same, and another one is less busy."""
    scene = play()
    chosen = next(offer for offer in scene.offers if offer.replica == scene.chosen)
    others = [offer for offer in scene.offers if offer is not chosen]
    assert chosen.held_tokens > 0.9 * scene.prompt_tokens
    assert all(offer.held_tokens == 0 for offer in others)
    assert all(chosen.queue_s + chosen.compute_s < offer.queue_s + offer.compute_s for offer in others)
    assert chosen.queue_s > min(offer.queue_s for offer in others)


def test_readme_shows_it_and_it_loads_nothing() -> None:
    assert f"({PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
    addresses = [value for piece in ET.parse(PICTURE).iter() for value in piece.attrib.values() if "://" in value]
    assert addresses == []
