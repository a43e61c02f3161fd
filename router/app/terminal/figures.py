"""What the admin API says, as far as a terminal shows it, and its sums over several routers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

WINDOWS = ("5m", "1h", "24h")
"""The spans of time that /api/overview has figures for."""


class Totals(msgspec.Struct):
    """What happened within a window, of one model, one replica or all."""

    requests: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    predicted_cached_tokens: int = 0
    reported_prompt_tokens: int = 0
    engine_cached_tokens: int = 0
    counter_queries_tokens: int = 0
    counter_hits_tokens: int = 0
    lost_tokens: int = 0
    saved_prefill_s: float = 0.0

    @property
    def hit_ratio(self) -> float | None:
        """As engines reported it; None where none did."""
        return ratio(self.engine_cached_tokens, self.reported_prompt_tokens)

    @property
    def counter_ratio(self) -> float | None:
        """As the engines' own counters have it; None where they say nothing."""
        return ratio(self.counter_hits_tokens, self.counter_queries_tokens)

    @property
    def known_ratio(self) -> float | None:
        """As answers say, or where none does, as the engines' counters do."""
        return self.counter_ratio if self.hit_ratio is None else self.hit_ratio

    @property
    def predicted_ratio(self) -> float | None:
        """As the router believed; None without a prompt."""
        return ratio(self.predicted_cached_tokens, self.prompt_tokens)


class Lost(msgspec.Struct):
    """What one cause cost."""

    cause: str
    turns: int
    tokens: int
    prefill_s: float


class Spread(msgspec.Struct):
    """Quantiles of a time, in seconds; None where `count` is 0."""

    count: int = 0
    p50_s: float | None = None
    p95_s: float | None = None


class WarmAndCold(msgspec.Struct):
    """Time to first token of prompts that a replica held the beginning of, and of all others."""

    warm: Spread = msgspec.field(default_factory=Spread)
    cold: Spread = msgspec.field(default_factory=Spread)


class Window(Totals):
    """What happened within a window at one router."""

    causes: list[Lost] = []
    reasons: dict[str, int] = {}
    errors: dict[str, int] = {}
    ttft: WarmAndCold = msgspec.field(default_factory=WarmAndCold)
    phases: dict[str, Spread] = {}
    saved_ttft_s: float | None = None


class Ledger(msgspec.Struct):
    """What was sent to a replica and has not ended."""

    uncached_tokens: int = 0
    streams: int = 0


class Mirror(msgspec.Struct):
    """What a router believes of a replica's cache; None is unknown."""

    fill_ratio: float | None = None
    error_ratio: float | None = None


class ReplicaRow(msgspec.Struct):
    """One replica as a router sees it."""

    id: str
    url: str
    state: str
    name: str | None = None
    rank: int | None = None
    cause: str | None = None
    asleep: bool | None = None
    pressure_ratio: float = 0.0
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    mirror: Mirror = msgspec.field(default_factory=Mirror)
    eviction_age_s: float | None = None
    windows: dict[str, Totals] = {}


class QueueRow(msgspec.Struct):
    """What waits in a router."""

    requests: dict[str, int] = {}
    bytes: int = 0


class PeerRow(msgspec.Struct):
    """A router that another one hears."""

    id: str
    heard_s: float
    self_: bool = msgspec.field(default=False, name="self")


class RedisRow(msgspec.Struct):
    """How Redis is to a router."""

    state: str
    address: str = ""
    cause: str | None = None
    backlog: int = 0


class Overview(msgspec.Struct):
    """What /api/overview answers."""

    now_s: float
    version: str
    policy: str
    uptime_s: float
    windows: dict[str, Window]
    replicas: list[ReplicaRow]
    models: dict[str, dict[str, Totals]] = {}
    queue: QueueRow = msgspec.field(default_factory=QueueRow)
    routers: list[PeerRow] = []
    redis: RedisRow | None = None


class Decided(msgspec.Struct):
    """The choice for one request."""

    replica: str
    reason: str
    prompt_tokens: int = 0
    matched_tokens: int = 0


class Reported(msgspec.Struct):
    """What the engine said of its answer."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None


class Missed(msgspec.Struct):
    """What became of a turn's history."""

    lost_tokens: int = 0
    cause: str | None = None


class DecisionRow(msgspec.Struct):
    """A row of /api/decisions: one finished request."""

    request_id: str
    model: str = ""
    status: int = 0
    at_s: float | None = None
    decision: Decided | None = None
    usage: Reported = msgspec.field(default_factory=Reported)
    ttft_s: float | None = None
    total_s: float = 0.0
    error: str | None = None
    turn: Missed | None = None


def ratio(part: float, whole: float) -> float | None:
    """Return part / whole; None where there is nothing to divide by."""
    return part / whole if whole else None


def total_of(parts: Iterable[Totals]) -> Totals:
    """Return the sums of all counts."""
    total = Totals()
    for part in parts:
        for name in Totals.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(part, name))
    return total


def lost_of(windows: Iterable[Window]) -> list[Lost]:
    """Return what each cause cost in all windows, the dearest first. First turns that lost nothing are left out."""
    lost: dict[str, Lost] = {}
    for window in windows:
        for cause in window.causes:
            sum_ = lost.setdefault(cause.cause, Lost(cause.cause, 0, 0, 0.0))
            sum_.turns += cause.turns
            sum_.tokens += cause.tokens
            sum_.prefill_s += cause.prefill_s
    return sorted((cause for cause in lost.values() if cause.tokens), key=lambda cause: -cause.tokens)


def counts_of(parts: Iterable[Mapping[str, int]]) -> list[tuple[str, int]]:
    """Return sums by name, the largest first."""
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part)
    return counts.most_common()


def merged_replicas(overviews: list[Overview]) -> list[ReplicaRow]:
    """Return each replica once, whatever the number of routers that see it.

    Requests and ledgers are sums. Of the rest it is the worst that any router says: the highest pressure, fill and
    error, the lowest eviction age, and every state that differs from `ready`.
    """
    seen: dict[tuple[str, int | None], list[ReplicaRow]] = {}
    for overview in overviews:
        for row in overview.replicas:
            seen.setdefault((row.url, row.rank), []).append(row)
    return [rows[0] if len(rows) == 1 else _merged(rows) for rows in seen.values()]


def _merged(rows: list[ReplicaRow]) -> ReplicaRow:
    states = dict.fromkeys(row.state for row in rows)
    names = dict.fromkeys(window for row in rows for window in row.windows)
    return ReplicaRow(
        id=rows[0].id,
        url=rows[0].url,
        state="/".join(state for state in states if state != "ready") or "ready",
        name=rows[0].name,
        rank=rows[0].rank,
        cause=next((row.cause for row in rows if row.cause), None),
        asleep=any(row.asleep for row in rows),
        pressure_ratio=max(row.pressure_ratio for row in rows),
        ledger=Ledger(
            sum(row.ledger.uncached_tokens for row in rows),
            sum(row.ledger.streams for row in rows),
        ),
        mirror=Mirror(
            _worst(max, (row.mirror.fill_ratio for row in rows)),
            _worst(max, (row.mirror.error_ratio for row in rows)),
        ),
        eviction_age_s=_worst(min, (row.eviction_age_s for row in rows)),
        windows={name: total_of(row.windows[name] for row in rows if name in row.windows) for name in names},
    )


def _worst(pick: Any, values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return pick(known) if known else None
