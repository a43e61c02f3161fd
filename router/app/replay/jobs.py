"""Runs, several at a time: each in a process of its own, with one progress for all."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from ctypes import c_double
from dataclasses import dataclass, field
from typing import Any

from router.replay.demand import Workload
from router.replay.plan import Plan, Result
from router.replay.report.figures import Curves, Figures, curves_of, figures_of
from router.replay.run import run

LOOK_S = 0.2
"""Between two looks at how far the processes are: as often as a progress bar is drawn anew."""

Progress = Callable[[float], None]
"""Told how much of all runs is over, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of a run: small, for it comes from another process."""

    plan: Plan
    figures: Figures
    curves: Curves
    pooled_ratio: float
    ceiling_ratio: float
    run_s: float
    router_s: float
    too_long: int
    """Requests that no empty cache would hold; they were not asked at all."""
    touches: dict[str, float] = field(default_factory=dict)
    """What touches did, warm-up included; empty where none were to be made."""


def outcome_of(result: Result) -> Outcome:
    """What is kept of it."""
    return Outcome(
        plan=result.plan,
        figures=figures_of(result),
        curves=curves_of(result),
        pooled_ratio=result.pooled_ratio,
        ceiling_ratio=result.ceiling_ratio,
        run_s=result.run_s,
        router_s=result.router_s,
        too_long=int(result.extra.get("too_long", 0)),
        touches={name: figure for name, figure in result.extra.items() if name.startswith("touch")},
    )


def run_all(plans: Sequence[Plan], workload: Workload, jobs: int | None, progress: Progress) -> list[Outcome]:
    """Run every plan; `jobs` at a time, by default as many as there are cores. Outcomes in the plans' order."""
    workers = min(jobs or os.cpu_count() or 1, len(plans))
    if workers == 1:
        return _one_by_one(plans, workload, progress)
    return _side_by_side(plans, workload, workers, progress)


def _one_by_one(plans: Sequence[Plan], workload: Workload, progress: Progress) -> list[Outcome]:
    def told(number: int) -> Progress:
        return lambda share: progress((number + share) / len(plans))

    return [outcome_of(run(plan, workload, told(number))) for number, plan in enumerate(plans)]


def _side_by_side(plans: Sequence[Plan], workload: Workload, workers: int, progress: Progress) -> list[Outcome]:
    # Spawned, not forked: the progress bar's thread may hold a lock at that moment.
    context = multiprocessing.get_context("spawn")
    shares = context.Array(c_double, len(plans), lock=False)
    with ProcessPoolExecutor(workers, context, _start, (workload, shares)) as pool:
        futures = [pool.submit(_run, number, plan) for number, plan in enumerate(plans)]
        try:
            _watch(futures, shares, progress)
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _watch(futures: Sequence[Future[Outcome]], shares: Any, progress: Progress) -> None:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, LOOK_S, FIRST_EXCEPTION)
        progress(sum(shares) / len(shares))
        if any(future.exception() for future in done):
            return


# What a process was started with: arguments that each of its runs needs, handed over once.
_given: dict[str, Any] = {}


def _start(workload: Workload, shares: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once and says nothing: the first process speaks for all
    _given.update(workload=workload, shares=shares)


def _run(number: int, plan: Plan) -> Outcome:
    def told(share: float) -> None:
        _given["shares"][number] = share

    outcome = outcome_of(run(plan, _given["workload"], told))
    told(1.0)
    return outcome
