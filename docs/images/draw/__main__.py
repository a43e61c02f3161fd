"""Writes docs/images/warm-replica.svg."""

from pathlib import Path

from docs.images.draw.scene import play
from docs.images.draw.svg import draw

Path(__file__).parents[1].joinpath("warm-replica.svg").write_text(draw(play()))
