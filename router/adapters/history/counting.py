"""Counts requests for the admin API: what happened in the last 5 minutes, hour and day.

Counting is adding to plain numbers, since it happens once per request in the data plane.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable

from router.core.fleet import Fleet
from router.core.history import layout
from router.core.history.layout import (
    CACHED_TOKENS,
    COUNTER_HITS,
    COUNTER_QUERIES,
    ERROR_TOKENS,
    FAILED,
    LOST_TOKENS,
    PREDICTED_TOKENS,
    PROMPT_TOKENS,
    REPORTED_TOKENS,
    REQUESTS,
    SAVED_US,
    TALLY_FIELDS,
    WARM_TURNS,
)
from router.core.history.quantiles import ENDS_S
from router.core.history.series import Name, Series
from router.core.history.windows import Rolling
from router.core.misses.types import Cause, TurnAccount
from router.core.types import Decision, OutcomeKind, Reason, ReplicaId, Usage
from router.ports import RequestRecord

MAX_MODELS = 64
"""Model names come from clients: beyond this many within a day they are counted as `other`."""

MAX_NAME = 200
"""Characters of a model's name that are kept."""

_PASSING = frozenset({layout.MODEL, layout.REPLICA, layout.ERROR})
"""Kinds of series that are forgotten a day after their last request."""


class History:
    """The observer that counts. Its times are Unix times that never go back while the router runs."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float], unix_s: float | None = None) -> None:
        """`clock` in monotonic seconds. `unix_s`: what to add to them for Unix time; None: what fits now."""
        self._fleet = fleet
        self._clock = clock
        self._unix_s = time.time() - clock() if unix_s is None else unix_s
        self.started_s = self.now()
        self.ran_s: list[tuple[float, float]] = []
        """From when to when routers ran before this one, as far as they said so: what is between is not known."""
        self.series = Series()
        self.rolling = Rolling(self.started_s)
        self._open_until_s = self.rolling.ends_s
        self._rows: dict[tuple[ReplicaId, str], list[int]] = {}
        """Tallies of the open step by replica and model, not yet added to those of each; "" is neither."""
        self._models: set[str] = set()
        self._engines: dict[ReplicaId, tuple[float, float]] = {}
        """Queries and hits as the engines' counters stood when they were last looked at."""
        self._firsts()

    def _firsts(self) -> None:
        """Look up where the counts go whose series are few and always there."""
        first = self.series.first
        self._fleet_first = first(layout.FLEET)
        self._warm = [first(Name(layout.WARM, length)) for length in layout.LENGTHS]
        self._cold = [first(Name(layout.COLD, length)) for length in layout.LENGTHS]
        phases = [first(Name(layout.PHASE, phase)) for phase in layout.PHASES]
        self._overhead, self._queue, self._retry, self._connect, self._prefill, self._decode = phases
        self._reasons = {reason: first(Name(layout.REASON, reason.value)) for reason in Reason}
        self._causes = {cause: first(Name(layout.CAUSE, cause.value)) for cause in Cause}
        self._in_time, self._too_late = first(Name(layout.IN_TIME)), first(Name(layout.TOO_LATE))
        self._models = set(self.series.kind(layout.MODEL))

    def resume(self, series: Series, rolling: Rolling, ran_s: list[tuple[float, float]]) -> None:
        """Go on from what other routers counted before this one has counted anything."""
        self.series, self.rolling, self.ran_s = series, rolling, ran_s
        self._firsts()

    def now(self) -> float:
        """Return the time, in Unix seconds."""
        return self._clock() + self._unix_s

    def request_finished(self, record: RequestRecord) -> None:
        """Count a finished request."""
        if self._clock() + self._unix_s >= self._open_until_s:
            self.roll()
        decision, status = record.decision, record.status
        replica = "" if decision is None else decision.replica
        row = self._rows.get((replica, record.model))
        if row is None:
            row = self._row(replica, record.model, status)
        row[REQUESTS] += 1
        if status >= 500:
            row[FAILED] += 1
        counts = self.rolling.counts
        if record.error is not None:
            counts[self.series.first(Name(layout.ERROR, record.error))] += 1
        counts[self._overhead + bisect_left(ENDS_S, record.overhead_s)] += 1
        counts[self._queue + bisect_left(ENDS_S, record.queued_s)] += 1
        if decision is None:
            return
        counts[self._reasons[decision.reason]] += 1
        if status < 400:
            self._count_tokens(row, record.usage, decision)
        self._count_attempt(record, decision)
        turn = record.turn
        if turn is not None:
            self._count_turn(row, turn, decision)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Failed attempts are no requests."""

    def _row(self, replica: ReplicaId, model: str, status: int) -> list[int]:
        """Return the row of a replica and model under the names that they are counted by."""
        if replica not in self._fleet:
            replica = ""  # it left before its last request ended
        return self._rows.setdefault((replica, self._label(model, status)), [0] * TALLY_FIELDS)

    def _label(self, model: str, status: int) -> str:
        model = model[:MAX_NAME]
        if not model or model in self._models:
            return model
        if 400 <= status < 500:
            return ""  # a name that nobody serves is a client's mistake
        if len(self._models) >= MAX_MODELS:
            return "other"
        self._models.add(model)
        return model

    def _count_tokens(self, row: list[int], usage: Usage, decision: Decision) -> None:
        matched, prompt = decision.matched_tokens, usage.prompt_tokens
        if prompt is None:
            prompt = decision.prompt_tokens
        row[PROMPT_TOKENS] += prompt
        row[PREDICTED_TOKENS] += matched
        cached = usage.cached_tokens
        if cached is None:
            cached = matched
        else:
            row[REPORTED_TOKENS] += prompt
            row[CACHED_TOKENS] += cached
            row[ERROR_TOKENS] += abs(matched - cached)
        if cached:
            row[WARM_TURNS] += 1
            row[SAVED_US] += self._prefill_us(cached, decision.replica)

    def _prefill_us(self, tokens: int, replica_id: ReplicaId) -> int:
        """Return what a replica takes to compute so many tokens, as far as is known now."""
        replica = self._fleet.get(replica_id)
        return 0 if replica is None else int(tokens * 1e6 / replica.prefill.tokens_per_s)

    def _count_attempt(self, record: RequestRecord, decision: Decision) -> None:
        counts = self.rolling.counts
        counts[self._retry + bisect_left(ENDS_S, record.retried_s)] += 1
        counts[self._connect + bisect_left(ENDS_S, record.connect_s)] += 1
        ttft_s = record.ttft_s
        if ttft_s is None or not record.streaming:
            return
        tokens = record.usage.prompt_tokens
        length = bisect_left(layout.LENGTHS_TOKENS, decision.prompt_tokens if tokens is None else tokens)
        series = self._warm if decision.matched_tokens else self._cold
        counts[series[length] + bisect_left(ENDS_S, ttft_s)] += 1
        prefill_s, decode_s = record.prefill_s, record.decode_s
        if prefill_s is not None:
            counts[self._prefill + bisect_left(ENDS_S, prefill_s)] += 1
        if decode_s is not None:
            counts[self._decode + bisect_left(ENDS_S, decode_s)] += 1

    def _count_turn(self, row: list[int], turn: TurnAccount, decision: Decision) -> None:
        counts, cause, idle_s = self.rolling.counts, turn.cause, turn.idle_s
        if idle_s is not None:
            series = self._too_late if cause is Cause.EVICTED else self._in_time
            counts[series + bisect_left(layout.RETURN_BOUNDS_S, idle_s)] += 1
        if cause is None:
            return
        first = self._causes[cause]
        counts[first + layout.TURNS] += 1
        if turn.lost_tokens:
            row[LOST_TOKENS] += turn.lost_tokens
            counts[first + layout.TOKENS] += turn.lost_tokens
            counts[first + layout.PREFILL_US] += self._prefill_us(turn.lost_tokens, decision.replica)

    def was_up(self, begin_s: float, length_s: float) -> bool:
        """Tell whether a router counted in some of this time, of which none is in the future."""
        end_s = begin_s + length_s
        return end_s > self.started_s or any(begin_s < until_s and end_s > from_s for from_s, until_s in self.ran_s)

    def roll(self) -> None:
        """Have everything counted in its place, and steps closed whose time is over. To be called before reading."""
        self._fold()
        day = self.rolling.open_step("24h")
        self.rolling.roll(self.now())
        self._open_until_s = self.rolling.ends_s
        if self.rolling.open_step("24h") != day:
            self.series.forget_all_but(self.rolling.totals("24h"), _PASSING)
            self._models = set(self.series.kind(layout.MODEL))

    def _fold(self) -> None:
        """Add the rows to what they are rows of."""
        counts, rows, self._rows = self.rolling.counts, self._rows, {}
        for (replica, model), row in rows.items():
            firsts = [self._fleet_first]
            if replica in self._fleet:
                firsts.append(self.series.first(Name(layout.REPLICA, replica)))
            if model:
                firsts.append(self.series.first(Name(layout.MODEL, model)))
            for field, value in enumerate(row):
                if value:
                    for first in firsts:
                        counts[first + field] += value
        self._look_at_counters()

    def _look_at_counters(self) -> None:
        """Add what the engines' own counters rose by: they know it of clients, too, that ask for no usage."""
        counts = self.rolling.counts
        for replica in self._fleet:
            queries, hits = replica.report.prefix_queries_tokens, replica.report.prefix_hits_tokens
            if queries is None or hits is None:
                continue
            before = self._engines.get(replica.replica_id)
            self._engines[replica.replica_id] = queries, hits
            if before is None or queries == before[0]:
                continue
            if queries < before[0]:
                before = 0.0, 0.0  # it was started anew
            for first in (self._fleet_first, self.series.first(Name(layout.REPLICA, replica.replica_id))):
                counts[first + COUNTER_QUERIES] += int(queries - before[0])
                counts[first + COUNTER_HITS] += int(hits - before[1])

    def forget(self, replica: ReplicaId) -> None:
        """Forget what was counted of a replica that left the fleet; the fleet's own numbers stay."""
        self._fold()
        self._engines.pop(replica, None)
        self.series.forget(Name(layout.REPLICA, replica))
