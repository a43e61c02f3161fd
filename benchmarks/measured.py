"""What policies.py has measured, as it is kept, and the tables of the docs that are made of it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.ablation import DATA, FORMER, LOADS, WHOLE, title
from router.core.price import Weights

MEASURED = DATA / "terms.json"
DOCS = Path(__file__).parents[1] / "docs"

Round = dict[str, float]
Measured = dict[str, dict[str, list[Round]]]
"""By load and row: a round for each seed."""

SHOWN = (
    ("hit_ratio", "hits %", 100, 1),
    ("ttft_mean_s", "TTFT mean, s", 1, 2),
    ("ttft_p50_s", "TTFT p50, s", 1, 2),
    ("ttft_p95_s", "TTFT p95, s", 1, 2),
    ("e2e_p95_s", "last token, p95, s", 1, 1),
)
"""Key, heading, factor, decimals."""

_PLACE = re.compile(r"(<!-- measured: ([a-z]+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


class Kept(msgspec.Struct):
    """The file."""

    date: str
    weights: dict[str, float]
    seeds: list[int]
    minutes: float
    """That were counted, of each load."""
    loads: Measured

    def alike(self, other: Kept) -> bool:
        """Tell whether figures of both may stand in one table."""
        return (self.weights, self.seeds, self.minutes) == (other.weights, other.seeds, other.minutes)


def as_measured(loads: Measured, seeds: list[int], minutes: float) -> str:
    """Return the file's text. What it has of the same price, seeds and minutes stays, but for what was run again."""
    now = Kept(datetime.now(UTC).date().isoformat(), dict(Weights()._asdict()), seeds, minutes, loads)
    if MEASURED.is_file() and (before := kept()).alike(now):
        now.loads = {load: before.loads.get(load, {}) | loads.get(load, {}) for load in {**before.loads, **loads}}
    return msgspec.json.format(msgspec.json.encode(rounded(now)), indent=1).decode() + "\n"


def rounded(whole: Kept) -> Kept:
    """Return it without digits that say nothing."""
    for rows in whole.loads.values():
        for rounds in rows.values():
            rounds[:] = [{key: round(number, 5) for key, number in one.items()} for one in rounds]
    return whole


def kept() -> Kept:
    """Return what was measured last. OSError: the file is missing."""
    return msgspec.json.decode(MEASURED.read_bytes(), type=Kept)


def pages() -> list[Path]:
    """The pages with places for tables."""
    return [*sorted((DOCS / "explanation" / "terms").glob("*.md")), DOCS / "adr" / "0013-price-again.md"]


def write_pages() -> None:
    """Put what is kept into the docs."""
    measured = kept()
    for page in pages():
        page.write_text(filled(page.read_text(), measured))


def filled(text: str, measured: Kept) -> str:
    """Return a page with its tables made anew."""
    return _PLACE.sub(lambda place: place[1] + "\n".join(_lines(place[2], measured)) + place[3], text)


def _lines(name: str, measured: Kept) -> Iterator[str]:
    if name == "how":
        yield from _how(measured)
    elif name == "all":
        yield from _matrices(measured)
    else:
        yield from _with_and_without(name, measured)


def _how(measured: Kept) -> Iterator[str]:
    weights = ", ".join(f"`{name}` {weight:g}" for name, weight in measured.weights.items())
    seeds = " and ".join(map(str, measured.seeds))
    plural = "s" if len(measured.seeds) > 1 else ""
    yield f"{measured.date}, {measured.minutes:g} minutes of each, seed{plural} {seeds}. Weights: {weights}."


def _matrices(measured: Kept) -> Iterator[str]:
    """One table a figure: rows by load."""
    loads = [load for load in LOADS if load in measured.loads]
    for number, (key, heading, factor, decimals) in enumerate(SHOWN):
        if number:
            yield ""
        yield from head([heading, *(LOADS[load].title for load in loads)])
        for row in measured.loads[loads[0]]:
            figures = [_middle(measured.loads[load].get(row, []), key) for load in loads]
            yield cells([title(row), *(_text(figure, factor, decimals) for figure in figures)])


def _with_and_without(row: str, measured: Kept) -> Iterator[str]:
    words = "now, before" if row == FORMER else "with, without"
    headings = [f"{heading}: {words}" for _, heading, _, _ in SHOWN]
    yield from head(["traffic", *headings])
    for load in LOADS:
        rows = measured.loads.get(load, {})
        if row in rows:
            yield cells([LOADS[load].title, *_pairs(rows[WHOLE], rows[row])])


def _pairs(whole: Sequence[Round], left_out: Sequence[Round]) -> Iterator[str]:
    for key, _, factor, decimals in SHOWN:
        both = (_text(_middle(rounds, key), factor, decimals) for rounds in (whole, left_out))
        yield ", ".join(both)


def _middle(rounds: Sequence[Mapping[str, float]], key: str) -> float | None:
    return statistics.median(one[key] for one in rounds) if rounds else None


def _text(figure: float | None, factor: float, decimals: int) -> str:
    return "-" if figure is None else f"{figure * factor:,.{decimals}f}"


def head(headings: Sequence[str]) -> Iterator[str]:
    """A table's first two lines."""
    yield cells(headings)
    yield cells(["---"] * len(headings))


def cells(texts: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(texts)} |"
