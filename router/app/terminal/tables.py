"""The tables of a frame: what was lost to what, models, routers, replicas, the last decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from router.app.terminal.figures import DecisionRow, Lost, ReplicaRow, Spread, Totals, lost_of, merged_replicas, ratio
from router.app.terminal.headline import BAR_COLUMNS
from router.app.terminal.numbers import UNKNOWN, clock, percent, plain, seconds, tokens, whole_percent
from router.app.terminal.view import View, Watched

Row = TypeVar("Row")
Cell = str | Text

_STATES = {"ready": "green", "joining": "cyan", "draining": "cyan", "suspect": "yellow", "ejected": "bold red"}
_WIDE, _ROOMY, _WIDER = 100, 110, 130
"""Terminal widths from which on a table has more columns."""


class Column(NamedTuple, Generic[Row]):
    """One column."""

    heading: str
    cell: Callable[[Row], Cell]
    right: bool = True
    from_width: int = 0
    """Terminal width from which on it is shown."""
    most: int | None = None
    """Width that it never exceeds: names may be long."""


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int, limit: int, what: str) -> RenderableType:
    """Return the first rows, and below them how many more there are: `limit` lines with that, the heading aside."""
    shown = [column for column in columns if width >= column.from_width]
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    for column in shown:
        side: JustifyMethod = "right" if column.right else "left"
        made.add_column(column.heading, justify=side, no_wrap=True, overflow="ellipsis", max_width=column.most)
    fitting = len(rows) if len(rows) <= limit else max(0, limit - 1)
    for row in rows[:fitting]:
        made.add_row(*(column.cell(row) for column in shown))
    if rows and fitting == len(rows):
        return made
    return Group(made, Text(f"{len(rows) - fitting} more {what}" if rows else "none yet", "dim"))


# What was lost


def causes_table(view: View, width: int, limit: int) -> RenderableType:
    """Return why turns missed, the dearest cause first."""
    lost_tokens = view.totals.lost_tokens

    def share(lost: Lost) -> float:
        return ratio(lost.tokens, lost_tokens) or 0.0

    columns: list[Column[Lost]] = [
        Column("lost to", lambda lost: plain(lost.cause), right=False),
        Column("turns", lambda lost: f"{lost.turns:,}"),
        Column("tokens", lambda lost: tokens(lost.tokens)),
        Column("share", lambda lost: whole_percent(share(lost))),
        Column("prefill", lambda lost: seconds(lost.prefill_s)),
        Column("", lambda lost: Text("█" * max(1, round(share(lost) * BAR_COLUMNS)), "yellow"), right=False),
    ]
    return table(columns, lost_of(view.windows), width, limit, "causes")


# Where the time goes

PHASES = ("overhead", "queue", "retry", "connect", "prefill", "decode")


def phases_table(view: View, width: int, limit: int) -> RenderableType:
    """Return how long each phase of a request took, at one router."""
    spreads = [(name, window.phases[name]) for window in view.windows for name in PHASES if name in window.phases]
    columns: list[Column[tuple[str, Spread]]] = [
        Column("phase", lambda named: named[0], right=False),
        Column("p50", lambda named: seconds(named[1].p50_s)),
        Column("p95", lambda named: seconds(named[1].p95_s)),
    ]
    return table(columns, spreads, width, limit, "phases")


# Models


_MODELS: list[Column[tuple[str, Totals]]] = [
    Column("model", lambda named: plain(named[0]), right=False, most=32),
    Column("requests", lambda named: f"{named[1].requests:,}"),
    Column("prompt", lambda named: tokens(named[1].prompt_tokens)),
    Column("reported", lambda named: percent(named[1].known_ratio)),
    Column("predicted", lambda named: percent(named[1].predicted_ratio)),
    Column("lost", lambda named: tokens(named[1].lost_tokens)),
]


def models_table(view: View, width: int, limit: int) -> RenderableType:
    """Return the models' shares, the busiest first."""
    return table(_MODELS, view.models, width, limit, "models")


# Routers


def routers_table(view: View, width: int, limit: int) -> RenderableType:
    """Return what each router says of itself, where there are several."""

    def totals(router: Watched) -> Totals:
        return router.overview.windows.get(view.window, Totals()) if router.overview else Totals()

    def ttft(router: Watched, kind: str) -> str:
        window = router.overview.windows.get(view.window) if router.overview else None
        spread: Spread = getattr(window.ttft, kind) if window else Spread()
        return f"{seconds(spread.p50_s)}/{seconds(spread.p95_s)}"

    columns: list[Column[Watched]] = [
        Column("router", _router, right=False, most=24),
        Column("requests", lambda router: f"{totals(router).requests:,}"),
        Column("reported", lambda router: percent(totals(router).known_ratio)),
        Column("lost", lambda router: tokens(totals(router).lost_tokens)),
        Column("warm p50/p95", lambda router: ttft(router, "warm")),
        Column("cold p50/p95", lambda router: ttft(router, "cold")),
        Column("queue", _queued, from_width=_WIDE),
        Column("Redis", _redis, right=False, from_width=_WIDE),
        Column("up", lambda router: seconds(router.overview.uptime_s if router.overview else None), from_width=_WIDER),
    ]
    return table(columns, view.routers, width, limit, "routers")


def _router(router: Watched) -> Text:
    return Text(router.label.partition("://")[2], "" if router.lost_since_s is None else "bold red")


def _queued(router: Watched) -> str:
    return f"{sum(router.overview.queue.requests.values()):,}" if router.overview else UNKNOWN


def _redis(router: Watched) -> str:
    redis = router.overview.redis if router.overview else None
    return UNKNOWN if redis is None else plain(redis.state)


# Replicas


def replicas_table(view: View, width: int, limit: int) -> RenderableType:
    """Return the replicas in the fleet's order; where not all fit, those that need attention come first."""

    def totals(row: ReplicaRow) -> Totals:
        return row.windows.get(view.window, Totals())

    columns: list[Column[ReplicaRow]] = [
        Column("replica", lambda row: plain(row.name or row.id), right=False, most=16 if width < _WIDE else 24),
        Column("address", _address, right=False, from_width=_ROOMY, most=24 if width < _WIDER else 36),
        Column("state", _state, right=False),
        Column("press.", lambda row: Text(whole_percent(row.pressure_ratio), _heat(row.pressure_ratio))),
        Column("ledger", lambda row: tokens(row.ledger.uncached_tokens), from_width=46),
        Column("streams", lambda row: f"{row.ledger.streams:,}", from_width=54),
        Column("fill", lambda row: whole_percent(row.mirror.fill_ratio), from_width=60),
        Column("evicts", lambda row: seconds(row.eviction_age_s), from_width=68),
        Column("accuracy", _accuracy, from_width=78),
        Column("hit", lambda row: percent(totals(row).known_ratio)),
        Column("lost", lambda row: tokens(totals(row).lost_tokens), from_width=_WIDE),
        Column("requests", lambda row: f"{totals(row).requests:,}", from_width=_WIDER),
    ]
    rows = merged_replicas(view.overviews)
    if len(rows) > limit:
        rows.sort(key=lambda row: (row.state == "ready", -row.pressure_ratio))
    return table(columns, rows, width, limit, "replicas")


def _address(row: ReplicaRow) -> str:
    rank = "" if row.rank is None else f" rank {row.rank}"
    return plain(row.url.partition("://")[2] or row.url) + rank


def _state(row: ReplicaRow) -> Text:
    return Text("asleep" if row.asleep and row.state == "ready" else plain(row.state), _STATES.get(row.state, "red"))


def _accuracy(row: ReplicaRow) -> str:
    error_ratio = row.mirror.error_ratio
    return percent(None if error_ratio is None else max(0.0, 1.0 - error_ratio))


def _heat(pressure_ratio: float) -> str:
    return "bold red" if pressure_ratio >= 0.8 else "yellow" if pressure_ratio >= 0.5 else ""


# Decisions


def decisions_table(view: View, width: int, limit: int) -> RenderableType:
    """Return the last decisions, newest first."""
    columns: list[Column[DecisionRow]] = [
        Column("reason", _reason, right=False),
        Column("replica", lambda row: plain(row.decision.replica if row.decision else UNKNOWN), right=False),
        Column("prompt", _prompt),
        Column("predicted", lambda row: tokens(row.decision.matched_tokens if row.decision else 0), from_width=_WIDE),
        Column("cached", lambda row: _known(row.usage.cached_tokens)),
        Column("TTFT", lambda row: seconds(row.ttft_s)),
        Column("total", lambda row: seconds(row.total_s), from_width=_WIDE),
        Column("trouble", _trouble, right=False),
        Column("model", lambda row: plain(row.model), right=False, from_width=_WIDER, most=24),
        Column("request", lambda row: plain(row.request_id), right=False, from_width=_WIDER, most=36),
    ]
    if any(row.at_s is not None for row in view.decisions):
        columns.insert(0, Column("at", lambda row: UNKNOWN if row.at_s is None else clock(row.at_s)))
    rows = view.decisions[: max(1, limit)]
    return table(columns, rows, width, max(1, limit), "decisions")


def _reason(row: DecisionRow) -> str:
    return plain(row.decision.reason) if row.decision else UNKNOWN


def _known(number: int | None) -> str:
    return UNKNOWN if number is None else tokens(number)


def _prompt(row: DecisionRow) -> str:
    if row.usage.prompt_tokens is not None:
        return tokens(row.usage.prompt_tokens)
    return tokens(row.decision.prompt_tokens) if row.decision else UNKNOWN


def _trouble(row: DecisionRow) -> Text:
    """Return the error that the client got, or else what its history was lost to."""
    if row.status >= 400:
        return Text(f"{row.status} {plain(row.error or '')}", "bold red" if row.status >= 500 else "yellow")
    if row.turn is None or not row.turn.lost_tokens:
        return Text()
    return Text(f"{plain(row.turn.cause or '')} {tokens(row.turn.lost_tokens)}", "yellow")
