"""What each term of the price is worth: offline, on seven kinds of traffic, with each term left out in turn.

usage: policies.py [--traces DIR] [--loads chats:3,...] [--rows affinity,queue,...] [--rivals] [--seeds 1] [--minutes 8]

DIR has what is not in the repository: mooncake_synthetic_trace.jsonl.gz, claude_code_sessions_a.jsonl.gz. Loads whose
file is missing are left out. docs/explanation/terms/worth.md says what the figures mean; --pages writes them into it.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.ablation import LOADS, ROWS, WHOLE, Load, contender, policy_name, title, workload_of
from benchmarks.measured import MEASURED, Measured, Round, as_measured, write_pages
from benchmarks.report import Column, print_table, values
from router.replay.plan import Plan, Result
from router.replay.report.figures import figures_of
from router.replay.rivals.names import RIVALS
from router.replay.run import run

COLUMNS = [
    Column("hit_ratio", "hits %", 100, 1),
    Column("ttft_mean_s", "TTFT mean s", 1, 2),
    Column("ttft_p50_s", "p50 s", 1, 2),
    Column("ttft_p95_s", "p95 s", 1, 2),
    Column("e2e_p95_s", "e2e p95 s", 1, 1),
    Column("refused_ratio", "refused %", 100, 1),
    Column("requests", "requests"),
]


class Task(NamedTuple):
    """One run."""

    load: str
    row: str
    seed: int
    minutes: float
    """That are counted."""
    traces: Path | None


def measure(task: Task) -> Round:
    load = LOADS[task.load]
    minutes = load.warm_up_minutes + task.minutes
    plan = Plan(
        policy_name(task.row),
        load.engine,
        minutes=minutes,
        warm_up_minutes=load.warm_up_minutes,
        seed=task.seed,
    )
    return round_of(run(plan, workload_of(load, minutes, task.traces), make=partial(contender, task.row)))


def round_of(result: Result) -> Round:
    figures = figures_of(result)
    ttfts_s = [one.ttft_s for one in result.answered]
    return {
        "ttft_mean_s": statistics.fmean(ttfts_s) if ttfts_s else float("nan"),
        **{key: getattr(figures, key) for key in (column.key for column in COLUMNS) if hasattr(figures, key)},
    }


def measure_all(tasks: Sequence[Task], jobs: int) -> Measured:
    measured: Measured = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for task, one in zip(tasks, pool.map(measure, tasks), strict=True):
            measured.setdefault(task.load, {}).setdefault(task.row, []).append(one)
            print(f"{task.load}: {title(task.row)}: seed {task.seed} done", file=sys.stderr, flush=True)
    return measured


def print_load(load: Load, rows: dict[str, list[Round]], minutes: float) -> None:
    named = {title(row): rounds for row, rounds in rows.items()}
    ratios = {
        "mean / whole": partial(against, named, "ttft_mean_s"),
        "p95 / whole": partial(against, named, "ttft_p95_s"),
    }
    heading = f"{load.title}, 8 replicas of {load.kv_tokens:,} tokens, {minutes:g} minutes"
    print_table(heading, named, COLUMNS, ratios)


def against(named: dict[str, list[Round]], key: str, name: str) -> float | None:
    """A row's figure over that of the whole price, median over the seeds."""
    pairs = zip(values(named, name, key), values(named, WHOLE, key), strict=False)
    ratios = [own / whole for own, whole in pairs if whole]
    return statistics.median(ratios) if ratios else None


def present(loads: Iterable[str], traces: Path | None) -> list[str]:
    found = []
    for key in loads:
        file = LOADS[key].file
        if not file or (traces is not None and (traces / file).is_file()):
            found.append(key)
        else:
            print(f"absent: {key}: it needs {file} in the folder of --traces")
    return found


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="folder with the recorded traffic that is not in the repository")
    parser.add_argument("--loads", default=",".join(LOADS), help="default: %(default)s")
    parser.add_argument("--rows", default=",".join(ROWS), help="terms to leave out (default: %(default)s)")
    parser.add_argument("--rivals", action="store_true", help="other routers' policies as well")
    parser.add_argument("--seeds", default="1", help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=8.0, help="that are counted (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: every core)")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    parser.add_argument("--pages", action="store_true", help=f"write {MEASURED.name}, and its figures into the docs")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    rows = options.rows.split(",") + (list(RIVALS) if options.rivals else [])
    loads, seeds = present(options.loads.split(","), options.traces), [int(seed) for seed in options.seeds.split(",")]
    tasks = [Task(load, row, seed, options.minutes, options.traces) for load in loads for row in rows for seed in seeds]
    measured = measure_all(tasks, options.jobs)
    for load, found in measured.items():
        print_load(LOADS[load], found, options.minutes)
    text = as_measured(measured, seeds, options.minutes)
    if options.json:
        options.json.write_text(text)
    if options.pages:
        MEASURED.write_text(text)
        write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
