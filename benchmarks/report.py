"""Tables of what was measured over several rounds: median, range, and ratios taken within each round."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

# One round's figures of one router; one router's rounds; all routers.
Round = Mapping[str, float]
Results = Mapping[str, Sequence[Round]]


@dataclass(frozen=True, slots=True)
class Column:
    """A figure to show: its key in a round, the heading, and the factor and decimals to print it with."""

    key: str
    heading: str
    factor: float = 1.0
    decimals: int = 0


def values(results: Results, name: str, key: str) -> list[float]:
    return [one[key] for one in results.get(name, ()) if key in one]


def spread(numbers: Sequence[float], factor: float = 1.0, decimals: int = 0) -> str:
    """Median with the smallest and largest, as "12 (10..15)"; "-" of nothing."""
    if not numbers:
        return "-"
    middle, least, most = (f"{f(numbers) * factor:,.{decimals}f}" for f in (statistics.median, min, max))
    return middle if least == most else f"{middle} ({least}..{most})"


def ratio_to_lowest(results: Results, name: str, others: Sequence[str], key: str) -> float | None:
    """Median over the rounds of `name`'s figure divided by the lowest of `others` in the same round.

    Absolute times drift with the machine; two figures of one round drift together.
    """
    ratios = []
    for number, own in enumerate(results.get(name, ())):
        rivals = [results[other][number] for other in others if number < len(results.get(other, ()))]
        lowest = min((rival[key] for rival in rivals if key in rival), default=0.0)
        if lowest and key in own:
            ratios.append(own[key] / lowest)
    return statistics.median(ratios) if ratios else None


def ratio_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def print_table(
    title: str, results: Results, columns: Sequence[Column], ratios: Mapping[str, Callable[[str], float | None]]
) -> None:
    """One row a router: the columns' spreads, then the ratios (heading to function of the router's name)."""
    table = Table(title=title, title_justify="left")
    table.add_column("router", no_wrap=True)
    for heading in [column.heading for column in columns] + list(ratios):
        table.add_column(heading, justify="right")
    for name in results:
        cells = [spread(values(results, name, c.key), c.factor, c.decimals) for c in columns]
        table.add_row(name, *cells, *(ratio_text(ratio(name)) for ratio in ratios.values()))
    console().print(table)


def console() -> Console:
    """As wide as the terminal, and wide enough for a whole table where there is none."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=170)


def write_json(path: Path | None, results: Mapping[str, object]) -> None:
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")
