"""The page's colours: text is readable, and parts of a chart differ for those who see fewer colours."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from router.app.dashboard import serving

Colour = tuple[float, float, float]
"""Red, green and blue, linear, 0 to 1."""

STYLES = Path(serving.__file__).parent / "page" / "colours.css"
SCHEMES = ("light", "dark")

# Machado, Oliveira and Fernandes 2009, severity 1.
SEEN_AS: dict[str, tuple[Colour, Colour, Colour]] = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}

each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def colours(scheme: str) -> dict[str, Colour]:
    light, dark = STYLES.read_text().split("@media (prefers-color-scheme: dark)")
    text = light if scheme == "light" else dark
    return {name: linear(value) for name, value in re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text)}


def linear(value: str) -> Colour:
    parts = [int(value[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def luminance(colour: Colour) -> float:
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), colour, strict=True))


def contrast(one: Colour, other: Colour) -> float:
    """By WCAG 2: 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: Colour) -> Colour:
    """CIE L*a*b*, D65."""
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    xyz = [sum(a * b for a, b in zip(row, colour, strict=True)) / part for row, part in zip(matrix, white, strict=True)]
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(one: Colour, other: Colour, sight: str) -> float:
    """CIE 1976: from about 2 on it is seen side by side."""
    seen = [[sum(a * b for a, b in zip(row, colour, strict=True)) for row in SEEN_AS[sight]] for colour in (one, other)]
    clipped = [tuple(min(1.0, max(0.0, part)) for part in colour) for colour in seen]
    return sum((a - b) ** 2 for a, b in zip(*(lab(each) for each in clipped), strict=True)) ** 0.5  # type: ignore[arg-type]


@each_scheme
def test_text_stands_out_from_what_is_behind_it(scheme: str) -> None:
    known = colours(scheme)
    texts = ("ink", "quiet", "accent", "good", "warn", "bad")
    for text, behind in itertools.product(texts, ("surface", "raised", "ground")):
        assert contrast(known[text], known[behind]) >= 4.5, (text, behind)
    for text in ("ink", "bad"):
        assert contrast(known[text], known["accent-soft"]) >= 4.5, text
    assert contrast(known["on-accent"], known["accent"]) >= 4.5
    assert contrast(known["quiet"], known["track"]) >= 4.5, "the switch of the windows"


@each_scheme
def test_lines_and_bars_stand_out_too(scheme: str) -> None:
    known = colours(scheme)
    for part in ("accent", "cold", "lost"):
        assert contrast(known[part], known["surface"]) >= 3, part
        assert contrast(known[part], known["track"]) >= 3, part


@each_scheme
@pytest.mark.parametrize("sight", SEEN_AS)
def test_reasons_differ_for_everybody(scheme: str, sight: str) -> None:
    known = {name: value for name, value in colours(scheme).items() if name.startswith("reason-")}
    assert len(known) == 12
    for (name, one), (following, other) in itertools.pairwise(known.items()):
        assert difference(one, other, sight) >= 25, f"{name} is stacked under {following}"
    for (name, one), (second, other) in itertools.combinations(known.items(), 2):
        assert difference(one, other, sight) >= 12, (name, second)


@each_scheme
@pytest.mark.parametrize("sight", SEEN_AS)
def test_warm_and_cold_differ_for_everybody(scheme: str, sight: str) -> None:
    known = colours(scheme)
    assert difference(known["accent"], known["cold"], sight) >= 25


def test_both_schemes_have_every_colour() -> None:
    assert set(colours("light")) == set(colours("dark"))
