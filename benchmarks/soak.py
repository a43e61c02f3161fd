"""Hours of chats and agents through real routers while engines, Redis and clients fail: what grows, what stays behind?

usage: soak.py [--minutes 30] [--workers 2] [--seed 1] [--flags "--record FILE --touch"] [--samples FILE] [--json FILE]

README.md beside this file says what each figure means. Exit code 1: a check failed.
"""

import argparse
import asyncio
import gc
import os
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import uvloop

from benchmarks.live import scaled_settings
from benchmarks.load import quantile
from benchmarks.processes import free_ports_in_a_row
from benchmarks.report import Column, print_table, write_json
from benchmarks.rig import SETTLE_S, raise_open_files_limit
from benchmarks.soak_faults import Faults, Kill
from benchmarks.soak_load import Asked, Load, hit_ratio, sessions_of
from benchmarks.soak_stage import Stage, engine, redis_program
from benchmarks.soak_watch import COUNTS, FILES, RSS, TASKS, Reading, Watch, growth, log_tally, unbounded_bytes

CALM, FAULTS = "calm", "with faults"
CALM_SHARE = 1 / 3
"""Of the minutes: the calm run, whose hit rate is compared with the same time of the other."""
UNCOUNTED_SHARE = 0.25
"""Of a run: the replicas' caches fill."""
FILLING_SHARE, FILLING_TURNS = 0.5, 40_000
"""Of the run with faults, and turns of each worker: what the router keeps of the last 40,000 turns has a bound, some 40
MB, but tells nobody its size. Only when it is full can be seen whether memory is flat; a shorter run judges nothing."""
MOST_POINTS = 0.02
"""By how much the hit rate may be below that of the calm run."""
DRAIN_S = 60.0
IDLE_DEADLINE_S = 40.0
MORE_FILES, MORE_TASKS = 6, 4
"""Above the number at the start: a connection to Redis more after it came back, a scrape that is under way."""
EXCUSED_S = 3.0
"""So long after a replica was killed its streams may still end."""

Figures = dict[str, float]


@dataclass
class Outcome:
    """What a run was, for the tables and for the verdict."""

    asked: list[Asked]
    figures: Figures
    routers: dict[str, Figures]
    failures: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)


def stage_of(options: argparse.Namespace, home: Path) -> Stage:
    ports = free_ports_in_a_row(2 + options.workers + options.replicas)
    port, redis_port, rest = ports[0], ports[1], ports[2:]
    admin_ports, engine_ports = rest[: options.workers], rest[options.workers :]
    engines = [engine(one, options.time_scale, options.kv_tokens, home) for one in engine_ports]
    redis = None if options.no_redis else redis_program(redis_port, home)
    return Stage(home, port, admin_ports, engines, redis, shlex.split(options.flags))


async def run(name: str, minutes: float, options: argparse.Namespace, home: Path, lines: TextIO) -> Outcome:
    stage = stage_of(options, home)
    try:
        await stage.start()
        return await soak(stage, Watch(stage, options.every_s, lines, name), name, minutes, options)
    finally:
        await stage.clear()


async def soak(stage: Stage, watch: Watch, name: str, minutes: float, options: argparse.Namespace) -> Outcome:
    await watch.look_until(lambda now: all_up(now, options.replicas), IDLE_DEADLINE_S)
    await asyncio.sleep(SETTLE_S)
    start = await watch.look()
    duration_s = minutes * 60 * options.time_scale
    sessions = sessions_of(options.chats_per_s, options.agents_per_s, duration_s, options.seed)
    load = Load(stage.port, sessions, duration_s, options.time_scale)
    watch.extra = lambda: {"requests": len(load.asked), "hit_ratio": round(hit_ratio(load.asked, 0, duration_s), 4)}
    gc.freeze()
    looking = asyncio.create_task(watch.keep_looking())
    began_s, until_s = time.monotonic() - watch.began_s, load.loop.time() + minutes * 60
    faults = Faults(stage, options.seed, options.hold_s, options.gap_s, lambda kind, what: watch.write(kind, what=what))
    load.start()
    if name == FAULTS:
        # Time is left at the end to heal, and to see the fleet whole again.
        await faults.run(until_s - 3 * options.hold_s)
    await asyncio.sleep(max(0.0, until_s - load.loop.time()))
    ended_s = time.monotonic() - watch.began_s
    cut = await load.drain(DRAIN_S)
    looking.cancel()
    end = await watch.look_until(lambda now: not left_over(start, now, options.replicas), IDLE_DEADLINE_S)
    exit_code = await stage.stop_router()
    outcome = outcome_of(load.asked, faults, stage)
    outcome.figures |= {"cut": cut, "own_5xx": faults.own_5xx, "minutes": (ended_s - began_s) / 60}
    outcome.figures["late_p99_s"] = quantile(sorted(load.late_s), 0.99)
    filling = FILLING_TURNS * options.workers / max(1, len(load.asked))
    counted_s = began_s + (ended_s - began_s) * max(filling, FILLING_SHARE)
    outcome.routers = routers_of(watch, start, end, counted_s, ended_s)
    outcome.problems += [*left_over(start, end, options.replicas), *watch.problems]
    outcome.problems += [f"exit code {exit_code}"] if exit_code else []
    return outcome


def all_up(now: Mapping[int, Reading], replicas: int) -> bool:
    return bool(now) and all(one["warmroute_replica_up"] == replicas for one in now.values())


def left_over(start: Mapping[int, Reading], now: Mapping[int, Reading], replicas: int) -> list[str]:
    """What is not as it was before anybody asked for anything."""
    found = []
    for port, one in now.items():
        found += [f"{name} of {port} is {one[name]:g}" for name in COUNTS if one[name]]
        for name, more in ((FILES, MORE_FILES), (TASKS, MORE_TASKS)):
            if one[name] > start[port][name] + more:
                found.append(f"{name} of {port} was {start[port][name]:g} and is {one[name]:g}")
        if one["warmroute_replica_up"] != replicas:
            found.append(f"{one['warmroute_replica_up']:g} of {replicas} replicas are up for {port}")
        if not one["warmroute_config_reload_success"]:
            found.append(f"a reload of {port} failed")
    return found if now else ["no router answers"]


def outcome_of(asked: list[Asked], faults: Faults, stage: Stage) -> Outcome:
    failures, deaths = sorted_failures(asked, faults.kills)
    said, exceptions = log_tally(stage.log)
    prompt_tokens = sum(one.prompt_tokens for one in asked)
    figures: Figures = {
        "requests": len(asked),
        "prompt_tokens": prompt_tokens,
        "hit_ratio": hit_ratio(asked, 0.0, float("inf")),
        "refused": sum(one.status == 429 for one in asked),
        "deaths": deaths,
        "failed": sum(failures.values()),
        "exceptions": exceptions,
    }
    return Outcome(asked, figures, {}, failures, [], faults.done, said)


def sorted_failures(asked: Sequence[Asked], kills: Sequence[Kill]) -> tuple[Counter[str], int]:
    """Failures by what the client saw, and apart from them the answers that died with a replica that was killed."""
    failures: Counter[str] = Counter()
    deaths = 0
    for one in asked:
        if not one.failed:
            continue
        if any(one.replica_id == name and one.began_s <= at_s <= one.ended_s + EXCUSED_S for name, at_s in kills):
            deaths += 1
        else:
            failures[f"{one.status} {one.problem}"] += 1
    return failures, deaths


def routers_of(
    watch: Watch, start: Mapping[int, Reading], end: Mapping[int, Reading], counted_s: float, ended_s: float
) -> dict[str, Figures]:
    found = {}
    for port, readings in watch.readings.items():
        first, last, most = start[port], end.get(port, start[port]), max(one[RSS] for _, one in readings)
        found[f"router {port}"] = {
            "start_bytes": first[RSS],
            "most_bytes": most,
            "end_bytes": last[RSS],
            "index_bytes": last["warmroute_index_bytes"],
            "unbounded_bytes": unbounded_bytes(last),
            **growth(readings, counted_s, ended_s),
            **{f"{when}_files": one[FILES] for when, one in (("start", first), ("end", last))},
            **{f"{when}_tasks": one[TASKS] for when, one in (("start", first), ("end", last))},
            "left": sum(last[name] for name in COUNTS),
            "restarted_tokens": last.get("missed:restarted", 0.0),
            "failover_tokens": last.get("missed:failover", 0.0),
        }
    return found


def compare(outcomes: Mapping[str, Outcome], calm_minutes: float, options: argparse.Namespace) -> None:
    """Add the hit rate of the time that both runs have, and what the routers say was lost to replicas that died."""
    end_s = calm_minutes * 60 * options.time_scale
    for outcome in outcomes.values():
        outcome.figures["same_time_hit_ratio"] = hit_ratio(outcome.asked, end_s * UNCOUNTED_SHARE, end_s)
        for cause in ("restarted", "failover"):
            lost_tokens = sum(router[f"{cause}_tokens"] for router in outcome.routers.values())
            outcome.figures[f"{cause}_ratio"] = lost_tokens / max(1, outcome.figures["prompt_tokens"])


def problems_of(outcome: Outcome, calm: Outcome | None) -> list[str]:
    found = list(outcome.problems)
    found += [f"{count} requests failed: {what}" for what, count in outcome.failures.items()]
    for name, router in outcome.routers.items() if calm is not outcome else ():
        if router["grown_mb_per_h"] > router["allowed_mb_per_h"]:
            found.append(f"{name} grows by {router['grown_mb_per_h']:.1f} MB an hour")
    for what in ("exceptions", "own_5xx", "cut"):
        if outcome.figures[what]:
            found.append(f"{what}: {outcome.figures[what]:g}")
    if calm is not None:
        lost = calm.figures["same_time_hit_ratio"] - outcome.figures["same_time_hit_ratio"]
        if lost > MOST_POINTS:
            found.append(f"the hit rate is {100 * lost:.1f} points below that of the calm run")
    return found


def print_results(outcomes: Mapping[str, Outcome]) -> None:
    columns = [
        Column("minutes", "minutes", 1, 1),
        Column("requests", "requests"),
        Column("hit_ratio", "hit rate", 1, 4),
        Column("same_time_hit_ratio", "in the same time", 1, 4),
        Column("restarted_ratio", "lost to restarts %", 100, 2),
        Column("failover_ratio", "to failover %", 100, 2),
        Column("refused", "429"),
        Column("deaths", "died with a replica"),
        Column("failed", "failed"),
        Column("exceptions", "exceptions"),
        Column("late_p99_s", "client late p99 s", 1, 2),
    ]
    print_table("Requests", {name: [one.figures] for name, one in outcomes.items()}, columns, {})
    columns = [
        Column("start_bytes", "RSS MB at start", 1e-6, 1),
        Column("most_bytes", "most", 1e-6, 1),
        Column("end_bytes", "end", 1e-6, 1),
        Column("index_bytes", "of it index", 1e-6, 1),
        Column("grown_mb_per_h", "grown MB/h", 1, 1),
        Column("allowed_mb_per_h", "allowed", 1, 1),
        Column("start_files", "files at start", 1),
        Column("end_files", "end", 1),
        Column("start_tasks", "tasks at start", 1),
        Column("end_tasks", "end", 1),
        Column("left", "left in flight", 1),
    ]
    for name, one in outcomes.items():
        print_table(f"Routers, {name}", {router: [row] for router, row in one.routers.items()}, columns, {})
        for what, tally in (("faults", one.faults), ("failures", one.failures), ("log", one.said)):
            for text, count in tally.most_common(20):
                print(f"{name}, {what}: {count} x {text[:200]}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of both runs together; a third of it is calm")
    parser.add_argument("--no-calm", action="store_true", help="no calm run, hence no comparison of hit rates")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-redis", action="store_true")
    parser.add_argument("--flags", default="", help="more flags of `warmroute serve`, in one word")
    parser.add_argument("--replicas", type=int, default=6)
    parser.add_argument("--kv-tokens", type=int, default=300_000, help="of each replica")
    parser.add_argument("--time-scale", type=float, default=4.0, help="simulated seconds a second")
    parser.add_argument("--chats-per-s", type=float, default=1.2, help="new ones a simulated second")
    parser.add_argument("--agents-per-s", type=float, default=0.06, help="new ones a simulated second")
    parser.add_argument("--hold-s", type=float, default=5.0, help="how long a fault lasts, about")
    parser.add_argument("--gap-s", type=float, default=20.0, help="from the end of a fault to the next, about")
    parser.add_argument("--every-s", type=float, default=5.0, help="between two readings of the metrics")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, help="folder for logs, which are kept then")
    parser.add_argument("--samples", type=Path, help="JSON lines: all readings and faults")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser.parse_args()


def run_all(options: argparse.Namespace, home: Path, lines: TextIO) -> dict[str, Outcome]:
    calm_minutes = 0.0 if options.no_calm else options.minutes * CALM_SHARE
    lengths = {CALM: calm_minutes, FAULTS: options.minutes - calm_minutes}
    outcomes = {}
    for name, minutes in lengths.items():
        if minutes:
            print(f"{name}: {minutes:.1f} minutes", file=sys.stderr, flush=True)
            folder = home / name.replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            outcomes[name] = uvloop.run(run(name, minutes, options, folder, lines))
    compare(outcomes, calm_minutes or options.minutes, options)
    return outcomes


def main() -> int:
    options = parse_arguments()
    # Told to end, it has to end its processes too, which live in sessions of their own.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise_open_files_limit()
    os.environ.update(scaled_settings(options.time_scale))
    with tempfile.TemporaryDirectory(prefix="soak-") as home:
        samples = options.samples or Path(home) / "samples.jsonl"
        with samples.open("w") as lines:
            outcomes = run_all(options, options.home or Path(home), lines)
    print_results(outcomes)
    rows = {name: [row] for one in outcomes.values() for name, row in one.routers.items()}
    write_json(options.json, {**{name: [one.figures | one.faults] for name, one in outcomes.items()}, **rows})
    found = [f"{name}: {text}" for name, one in outcomes.items()
             for text in problems_of(one, outcomes.get(CALM))]  # fmt: skip
    for problem in found:
        print(f"FAILED: {problem}", flush=True)
    print("soak: " + ("FAILED" if found else "nothing grew, nothing was left over"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
