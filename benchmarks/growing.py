"""Growing past one machine, offline: more replicas, more routers with older news, replicas of unequal speed.

usage: growing.py [--fleets 64:1,64:8] [--sync-ms 100] [--minutes 4] [--seeds 1] [--unequal [--trace FILE]]

Chats by their sizes, so many that engines are busy for half of the time once as many leave as come.
docs/how-to/scale.md says what came of it.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import Column, Results, print_table, values, write_json
from router.app.replay.opening import open_trace
from router.replay.demand import OpenLoop, Workload
from router.replay.plan import Plan, Result
from router.replay.report.figures import figures_of
from router.replay.run import run
from router.replay.sized_chats import SizedChats
from router.sim.types import EngineConfig

SESSIONS_PER_REPLICA_S = 0.55
KV_TOKENS, TRACE_KV_TOKENS = 300_000, 1_250_000
WARM_UP_SHARE = 0.4
FLEETS = "8:1,8:8,64:1,64:8,256:1,256:16"
EQUAL, UNEQUAL = (2.0,), (1.0, 3.0)
UNEQUAL_SESSIONS_PER_S = (3.0, 6.0)

Figures = dict[str, float]


class Task(NamedTuple):
    name: str
    plan: Plan
    workload: Workload


def grown(options: argparse.Namespace, seed: int) -> Iterator[Task]:
    for name in options.fleets.split(","):
        replicas, routers = map(int, name.split(":"))
        plan = Plan(
            "affinity",
            EngineConfig(kv_tokens=KV_TOKENS),
            replicas,
            minutes=options.minutes,
            warm_up_minutes=options.minutes * WARM_UP_SHARE,
            seed=seed,
            routers=routers,
            sync_ms=options.sync_ms if routers > 1 else 0.0,
        )
        rate = options.sessions_per_replica_s * replicas
        yield Task(f"{replicas} replicas, {routers} routers", plan, SizedChats(rate, options.minutes * 60))


def unequal(options: argparse.Namespace, seed: int) -> Iterator[Task]:
    loads: dict[str, tuple[Workload, int]] = {
        f"chats, {rate:g}/s": (SizedChats(rate, options.minutes * 60), KV_TOKENS) for rate in UNEQUAL_SESSIONS_PER_S
    }
    if options.trace:
        loads[options.trace.name.split(".")[0]] = OpenLoop("", open_trace(options.trace).requests), TRACE_KV_TOKENS
    for load, (workload, kv_tokens) in loads.items():
        plan = Plan(
            "affinity",
            EngineConfig(kv_tokens=kv_tokens),
            minutes=options.minutes,
            warm_up_minutes=options.minutes * WARM_UP_SHARE / 2,
            seed=seed,
        )
        for speeds in (EQUAL, UNEQUAL):
            yield Task(f"{load}: {':'.join(f'{s:g}' for s in speeds)}", replace(plan, speeds=speeds), workload)


def measure(task: Task) -> Figures:
    begun_s = time.process_time()
    result = run(task.plan, task.workload)
    return {**figures(result), "cpu_s": time.process_time() - begun_s}


def figures(result: Result) -> Figures:
    found, calls = figures_of(result), result.extra["calls"]
    names = ("hit_ratio", "ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "imbalance_ratio")
    return {"requests": calls, "router_us": result.router_s / calls * 1e6, **{n: getattr(found, n) for n in names}}


def against_first(results: Results, name: str, key: str) -> float | None:
    """Median of a figure over that of the row it is compared with: one router, or equal replicas."""
    first = re.sub(r"\d+ routers$", "1 routers", re.sub(r": 1:3$", ": 2", name))
    if first == name or first not in results:
        return None
    pairs = zip(values(results, name, key), values(results, first, key), strict=True)
    return statistics.median(own / other for own, other in pairs)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", default=FLEETS, help="replicas:routers, with commas between (default %(default)s)")
    parser.add_argument("--sync-ms", type=float, default=100.0, help="age of what routers know of each other")
    parser.add_argument("--sessions-per-replica-s", type=float, default=SESSIONS_PER_REPLICA_S, help="new chats")
    parser.add_argument("--minutes", type=float, default=4.0, help="of traffic, two fifths of them not counted")
    parser.add_argument("--seeds", type=int, default=1, help="rounds, each with the next seed")
    parser.add_argument("--unequal", action="store_true", help="8 replicas of speeds 1 and 3 against 8 of speed 2")
    parser.add_argument("--trace", type=Path, help="with --unequal: recorded traffic, too")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    results: dict[str, list[Figures]] = {}
    for seed in range(1, options.seeds + 1):
        for task in (unequal if options.unequal else grown)(options, seed):
            results.setdefault(task.name, []).append(measure(task))
            print(f"{task.name}: seed {seed} done", file=sys.stderr, flush=True)
    columns = [
        Column("requests", "requests"),
        Column("hit_ratio", "hits %", 100, 1),
        Column("imbalance_ratio", "busiest / mean", 1, 2),
        Column("ttft_p50_s", "TTFT p50 s", 1, 3),
        Column("ttft_p95_s", "p95 s", 1, 2),
        Column("ttft_p99_s", "p99 s", 1, 2),
        Column("router_us", "router us"),
        Column("cpu_s", "run s"),
    ]
    ratios = {
        "hits / first": lambda name: against_first(results, name, "hit_ratio"),
        "p95 / first": lambda name: against_first(results, name, "ttft_p95_s"),
    }
    print_table(f"{options.minutes:g} minutes, news {options.sync_ms:g} ms old", results, columns, ratios)
    write_json(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
