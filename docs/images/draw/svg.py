"""Puts a scene onto paper. One file, no font and no script of others; light and dark follow the reader's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import Template

from docs.images.draw.scene import Offer, Scene

FRAME = Path(__file__).with_name("frame.svg")
"""What does not change from scene to scene: clients, router, colours."""
TOP, STEP, HEIGHT = 48, 66, 54
LEFT, WIDTH = 540, 290
BAR_LEFT, BAR_WIDTH = 640, 174
ROUTER_EDGE, ROUTER_MIDDLE = 476, 165


def draw(scene: Scene) -> str:
    """Return the picture as SVG."""
    rows = "\n".join(line for number, offer in enumerate(scene.offers) for line in _row(scene, offer, number))
    chosen = next(offer for offer in scene.offers if offer.replica == scene.chosen)
    return Template(FRAME.read_text()).substitute(
        turn=scene.turn,
        before=scene.turn - 1,
        chosen=scene.chosen,
        prompt=f"{scene.prompt_tokens:,}",
        held=f"{chosen.held_tokens:,}",
        rows=rows,
    )


def _row(scene: Scene, offer: Offer, number: int) -> Iterator[str]:
    """A replica: its name, how much of the prompt it holds, and when it could answer; chosen ones in colour."""
    warm = offer.replica == scene.chosen
    top = TOP + STEP * number
    middle = top + HEIGHT / 2
    leaves = ROUTER_MIDDLE + (number - (len(scene.offers) - 1) / 2) * 16
    arrow = f"M{ROUTER_EDGE} {leaves:g} C510 {leaves:g} 500 {middle:g} {LEFT - 4} {middle:g}"
    kind, tip, width = ("warm", "warm-arrow", 3.5) if warm else ("line", "arrow", 1.5)
    yield f'  <path class="{kind}" d="{arrow}" stroke-width="{width:g}" marker-end="url(#{tip})"/>'
    edge = ' style="stroke-width:2"' if warm else ""
    yield f'  <rect class="box" x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="6"{edge}/>'
    words = 'class="warm-text" font-weight="600"' if warm else 'class="text"'
    yield f'  <text {words} x="{LEFT + 12}" y="{top + 22}" font-size="13">{offer.replica}</text>'
    yield f'  <rect class="cache" x="{BAR_LEFT}" y="{top + 10}" width="{BAR_WIDTH}" height="14" rx="3"/>'
    if offer.held_tokens:
        held = (BAR_WIDTH - 4) * offer.held_tokens / scene.prompt_tokens
        yield f'  <rect class="block" x="{BAR_LEFT + 2}" y="{top + 12}" width="{held:.1f}" height="10" rx="1.5"/>'
    words = 'class="warm-text"' if warm else 'class="dim"'
    queue, compute = round(offer.queue_s, 2), round(offer.compute_s, 2)
    line = f'y="{top + 43}" font-size="12"'
    yield f'  <text {words} x="{LEFT + 12}" {line}>queue {queue:.2f} s + compute {compute:.2f} s</text>'
    total = f'x="{BAR_LEFT + BAR_WIDTH}" {line} text-anchor="end" font-weight="600"'
    yield f"  <text {words} {total}>{queue + compute:.2f} s</text>"
