"""What is shown at one moment: what each router last said, and which window is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest

from router.app.terminal.figures import WINDOWS, DecisionRow, Overview, Totals, Window, total_of


@dataclass(slots=True)
class Watched:
    """One router, as its admin port last answered."""

    label: str
    """Its URL without what may be secret in it."""
    overview: Overview | None = None
    decisions: list[DecisionRow] = field(default_factory=list)
    lost_since_s: float | None = None
    """Unix time since which it does not answer; None while it does."""
    why: str = ""
    """What was wrong when it was last asked."""


@dataclass(slots=True)
class View:
    """All that a frame is drawn from."""

    routers: list[Watched]
    window: str = WINDOWS[0]
    now_s: float = 0.0
    """Unix time."""

    @property
    def overviews(self) -> list[Overview]:
        """What those routers said that have answered at all."""
        return [router.overview for router in self.routers if router.overview is not None]

    @property
    def windows(self) -> list[Window]:
        """The figures of the window that is looked at, router by router."""
        return [found for overview in self.overviews if (found := overview.windows.get(self.window))]

    @property
    def totals(self) -> Totals:
        """Their sums."""
        return total_of(self.windows)

    @property
    def decisions(self) -> list[DecisionRow]:
        """The last decisions of all routers, newest first."""
        in_turn = zip_longest(*(router.decisions for router in self.routers))
        rows = [row for rank in in_turn for row in rank if row is not None]
        return sorted(rows, key=lambda row: row.at_s or 0.0, reverse=True)  # stable: without times they stay in turn

    @property
    def models(self) -> list[tuple[str, Totals]]:
        """The figures of each model, the busiest first."""
        parts: dict[str, list[Totals]] = {}
        for overview in self.overviews:
            for name, windows in overview.models.items():
                if self.window in windows:
                    parts.setdefault(name, []).append(windows[self.window])
        totals = {name: total_of(found) for name, found in parts.items()}
        return sorted(totals.items(), key=lambda named: -named[1].prompt_tokens)
