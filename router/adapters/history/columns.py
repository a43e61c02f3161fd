"""A window's steps as columns of numbers, for charts."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from router.adapters.history.counting import History
from router.adapters.history.showing import (
    NOTHING,
    Fields,
    Fleetwide,
    by_length,
    fleetwide,
    fleetwide_firsts,
    merged,
    numbers,
    rounded,
)
from router.core.history import layout
from router.core.history.quantiles import quantiles_s
from router.core.history.series import Name
from router.core.history.windows import Step

TALLY = {
    "requests": layout.REQUESTS,
    "failed": layout.FAILED,
    "prompt_tokens": layout.PROMPT_TOKENS,
    "predicted_cached_tokens": layout.PREDICTED_TOKENS,
    "reported_prompt_tokens": layout.REPORTED_TOKENS,
    "engine_cached_tokens": layout.CACHED_TOKENS,
    "counter_queries_tokens": layout.COUNTER_QUERIES,
    "counter_hits_tokens": layout.COUNTER_HITS,
    "lost_tokens": layout.LOST_TOKENS,
}

STEPS_AT_ONCE = 5
"""Read between two looks at what else is to be done: about a millisecond."""


class Column(NamedTuple):
    """One step."""

    tally: list[int]
    reasons: dict[str, int]
    causes: dict[str, int]
    warm_s: list[float | None]
    """p50 and p95."""
    cold_s: list[float | None]
    queued_s: list[float | None]


class Columns:
    """Reads steps. What was read of a closed step is kept while a window has it, since it does not change any more."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._read: dict[tuple[int, int], Column] = {}
        """By length and index of the step."""

    async def show(self, name: str) -> dict[str, Any]:
        """Show a window; see docs/reference/endpoints.md."""
        self._history.roll()
        rolling = self._history.rolling
        window, last = rolling.windows[name], rolling.open_step(name)
        first = last - window.length + 1
        up = [self._history.was_up(index * window.step_s, window.step_s) for index in range(first, last + 1)]
        columns: list[Column | None] = [_EMPTY if ran else None for ran in up]
        for number, step in enumerate(rolling.steps(name)):
            columns[step.number - first] = self._column(step, window.step_s, last)
            if number % STEPS_AT_ONCE == STEPS_AT_ONCE - 1:
                await asyncio.sleep(0)
        return {"window": name, "step_s": window.step_s, "start_s": first * window.step_s, **_shown(columns)}

    def _column(self, step: Step, step_s: int, last: int) -> Column:
        column = self._read.get((step_s, step.number))
        if column is None:
            counts = zip(step.keys, step.values, strict=True)
            column = _column(fleetwide(counts, fleetwide_firsts(self._history.series)))
            if step.number < last:
                self._keep(step_s, step.number, column)
        return column

    def _keep(self, step_s: int, index: int, column: Column) -> None:
        self._read[step_s, index] = column
        if len(self._read) > 2 * sum(window.length for window in self._history.rolling.windows.values()):
            self._read = {}


_EMPTY = Column([0] * len(TALLY), {}, {}, [None, None], [None, None], [None])


def _column(shown: Fleetwide) -> Column:
    fleet = shown.get(layout.FLEET, NOTHING)
    return Column(
        [fleet.get(field, 0) for field in TALLY.values()],
        numbers(shown, layout.REASON),
        numbers(shown, layout.CAUSE, layout.TOKENS),
        _quantiles_s(merged(by_length(shown, layout.WARM)), 0.5, 0.95),
        _quantiles_s(merged(by_length(shown, layout.COLD)), 0.5, 0.95),
        _quantiles_s(shown.get(Name(layout.PHASE, "queue"), NOTHING), 0.95),
    )


def _quantiles_s(histogram: Fields, *ratios: float) -> list[float | None]:
    return [rounded(seconds) for seconds in quantiles_s(histogram, *ratios)]


def _shown(columns: list[Column | None]) -> dict[str, Any]:
    return {
        **{name: _each(columns, "tally", number) for number, name in enumerate(TALLY)},
        "reasons": _by_name(columns, "reasons"),
        "causes": _by_name(columns, "causes"),
        "ttft": {
            "warm_p50_s": _each(columns, "warm_s", 0),
            "warm_p95_s": _each(columns, "warm_s", 1),
            "cold_p50_s": _each(columns, "cold_s", 0),
            "cold_p95_s": _each(columns, "cold_s", 1),
        },
        "queued_p95_s": _each(columns, "queued_s", 0),
    }


def _each(columns: list[Column | None], part: str, number: int) -> list[float | None]:
    return [None if column is None else getattr(column, part)[number] for column in columns]


def _by_name(columns: list[Column | None], part: str) -> dict[str, list[int | None]]:
    names = {name for column in columns if column is not None for name in getattr(column, part)}
    return {
        name: [None if column is None else getattr(column, part).get(name, 0) for column in columns]
        for name in sorted(names)
    }
