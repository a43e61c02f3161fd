"""The numbers to decide by: what traffic does, measured over a replay of it on the fleet as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan

from router.replay.advice.arithmetic import idle_ratio
from router.replay.advice.turns import Turn, by_session, turn_of
from router.replay.demand import Job, Workload
from router.replay.plan import Answered, Plan, Result
from router.replay.report.figures import hit_ratio_of, quantile
from router.replay.run import Progress, Run

PEAK_S = 300.0
"""The busiest five minutes: long enough for a hit rate, short enough to be a peak. The admin port's day has steps of
that length, too."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Traffic in numbers. Times in s of the simulation; nan where there is nothing to measure."""

    requests: int
    requests_per_s: float
    sessions: int
    """Begun within the counted time."""
    sessions_per_s: float
    returned_ratio: float
    """Turns that were followed by another one of their session, 0 to 1."""
    think_p50_s: float
    """From the end of an answer to the session's next turn, where one came."""
    think_p90_s: float
    busy_mean_s: float
    """What such a turn took in the engine."""
    idle_ratio: float
    """Mean think time over itself and `busy_mean_s`: how much of its residency a pinned session is idle, 0 to 1."""
    prompt_p50_tokens: float
    prompt_p95_tokens: float
    history_p50_tokens: float
    """Prompts that went on from an earlier turn."""
    history_p95_tokens: float
    session_p50_tokens: float
    """Prompt and answer of a session's last turn: what there is to keep of it."""
    session_p95_tokens: float
    present_sessions: int
    """At the fullest moment: sessions whose turn runs, or ended at most `think_p90_s` before."""
    present_tokens: int
    """To be held for them."""
    peak_start_s: float
    peak_requests_per_s: float
    """In the busiest `PEAK_S`."""
    peak_hit_ratio: float
    """Prompt tokens from cache, of requests that arrived then, 0 to 1."""
    hit_ratio: float
    ceiling_ratio: float
    """Hits of a cache that never evicts."""


def measure(plan: Plan, workload: Workload, progress: Progress | None = None) -> tuple[Result, Measured]:
    """Replay a plan and measure the traffic. Raises as `run`."""
    turns: list[Turn] = []

    def listen(job: Job, answered: Answered) -> None:
        turns.append(turn_of(job, answered, workload.block_tokens))

    made = Run(plan, workload, progress)
    made.listener = listen
    result = made.run()
    return result, measured(result, turns)


def measured(result: Result, turns: Sequence[Turn]) -> Measured:
    """Return the numbers of a run: of what came after its warm-up, sessions being followed from before."""
    from_s, seconds = result.plan.warm_up_minutes * 60, counted_s(result)
    sessions = by_session(turns)
    counted = [turn for turn in turns if turn.answered.arrived_s >= from_s]
    pairs = [pair for session in sessions for pair in pairwise(session) if pair[1].answered.arrived_s >= from_s]
    thinks_s = sorted(max(0.0, after.answered.arrived_s - before.answered.ended_s) for before, after in pairs)
    lasts = [session[-1] for session in sessions if session[-1].answered.arrived_s >= from_s]
    begun = sum(session[0].answered.arrived_s >= from_s for session in sessions)
    think_p90_s = quantile(thinks_s, 0.9)
    present = fullest(sessions, think_p90_s if thinks_s else 0.0)
    peak = busiest(result.answered)
    prompts, histories = _tokens(counted), _tokens([after for _, after in pairs])
    held = sorted(float(turn.held_tokens) for turn in lasts)
    think_mean_s, busy_mean_s = _mean(thinks_s), _mean([before.busy_s for before, _ in pairs])
    return Measured(
        requests=len(counted),
        requests_per_s=len(counted) / seconds,
        sessions=begun,
        sessions_per_s=begun / seconds,
        returned_ratio=len(pairs) / len(counted) if counted else nan,
        think_p50_s=quantile(thinks_s, 0.5),
        think_p90_s=think_p90_s,
        busy_mean_s=busy_mean_s,
        idle_ratio=idle_ratio(think_mean_s, busy_mean_s) if pairs else nan,
        prompt_p50_tokens=quantile(prompts, 0.5),
        prompt_p95_tokens=quantile(prompts, 0.95),
        history_p50_tokens=quantile(histories, 0.5),
        history_p95_tokens=quantile(histories, 0.95),
        session_p50_tokens=quantile(held, 0.5),
        session_p95_tokens=quantile(held, 0.95),
        present_sessions=present[0],
        present_tokens=present[1],
        peak_start_s=min((one.arrived_s for one in peak), default=nan),
        peak_requests_per_s=len(peak) / min(PEAK_S, seconds),
        peak_hit_ratio=hit_ratio_of(peak),
        hit_ratio=hit_ratio_of(result.answered),
        ceiling_ratio=result.ceiling_ratio,
    )


def counted_s(result: Result) -> float:
    """Seconds that the plan counts."""
    return max(1e-9, (result.plan.minutes - result.plan.warm_up_minutes) * 60)


def busiest(answered: Sequence[Answered]) -> list[Answered]:
    """Return the requests of the `PEAK_S` in which most arrived."""
    by_arrival = sorted(answered, key=lambda one: one.arrived_s)
    best, first = (0, 0), 0
    for last, one in enumerate(by_arrival):
        while one.arrived_s - by_arrival[first].arrived_s >= PEAK_S:
            first += 1
        if last + 1 - first > best[1] - best[0]:
            best = (first, last + 1)
    return by_arrival[best[0] : best[1]]


def fullest(sessions: Sequence[Sequence[Turn]], hold_s: float) -> tuple[int, int]:
    """Return how many sessions, and tokens of theirs, are to be held at the moment at which tokens are most.

    A turn is held from its arrival to `hold_s` after its answer, or to the session's next turn.
    """
    count = tokens = 0
    most = (0, 0)
    for _, step, held in sorted(change for session in sessions for change in _changes(session, hold_s)):
        count, tokens = count + step, tokens + held
        if tokens > most[1]:
            most = (count, tokens)
    return most


def _changes(session: Sequence[Turn], hold_s: float) -> list[tuple[float, int, int]]:
    """When a session's turns begin and end to be held; at the same moment ends come first."""
    changes = []
    for turn, after in zip(session, [*session[1:], None], strict=True):
        next_s = inf if after is None else after.answered.arrived_s
        # A turn that came before the last one's answer: held together until then.
        until_s = min(turn.answered.ended_s + hold_s, max(next_s, turn.answered.arrived_s))
        changes += [(turn.answered.arrived_s, 1, turn.held_tokens), (until_s, -1, -turn.held_tokens)]
    return changes


def _tokens(turns: Sequence[Turn]) -> list[float]:
    return sorted(float(turn.answered.prompt_tokens) for turn in turns)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan
