"""What routers share through Redis: cache hits behind a random balancer, and what sharing costs.

usage: shared.py [--hits | --latency | --commands | --memory | --warm] [--rounds 1] [--secret] [--json FILE]

README.md beside this file says what each figure means.
"""

import argparse
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.table import Table

from benchmarks.report import Column, Results, console, print_table, spread, values, write_json
from benchmarks.rig import raise_open_files_limit
from benchmarks.shared_commands import NAMED, measure_commands
from benchmarks.shared_hits import measure_hits
from benchmarks.shared_latency import RATE_PER_S, measure_latency
from benchmarks.shared_memory import measure_memory
from benchmarks.shared_warm import measure_warm

Figures = dict[str, float]
SECRET = "a secret of a benchmark"


@dataclass(frozen=True, slots=True)
class Mode:
    """One of the measurements: a round of it, and how all rounds are shown."""

    help: str
    measure: Callable[[int, argparse.Namespace], Coroutine[Any, Any, dict[str, Figures]]]
    show: Callable[[Results, argparse.Namespace], None]


def print_rows(title: str, heading: str, results: Results, columns: Sequence[Column]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column(heading, no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="right")
    for name in results:
        table.add_row(name, *(spread(values(results, name, c.key), c.factor, c.decimals) for c in columns))
    console().print(table)


def show_hits(results: Results, options: argparse.Namespace) -> None:
    columns = [
        Column("requests", "requests"),
        Column("errors", "errors"),
        Column("hit_ratio", "hit rate", 1, 4),
        Column("of_one_ratio", "/ 1 router", 1, 3),
        Column("ttft_p50_s", "TTFT p50 s", 1, 3),
        Column("ttft_p95_s", "p95 s", 1, 2),
        Column("imbalance", "imbalance", 1, 2),
        Column("least_share_ratio", "least router %", 100, 1),
        Column("most_share_ratio", "most router %", 100, 1),
    ]
    load = f"{options.sessions_per_s:g} sessions/s, {options.replicas} replicas of {options.kv_tokens:,} tokens"
    title = f"{load}, {options.minutes:g} minutes at {options.time_scale:g}x"
    print_table(f"{title} (goal: with Redis at least 0.98 of the hits of 1 router)", results, columns, {})
    columns = [
        Column("fleet_late_p99_s", "replicas late p99 s", 1, 3),
        Column("client_late_p99_s", "client late p99 s", 1, 3),
        Column("routers_cpu_ratio", "routers CPU %", 100),
        Column("redis_cpu_ratio", "Redis CPU %", 100, 1),
        Column("fleet_cpu_ratio", "replicas CPU %", 100),
        Column("client_cpu_ratio", "client CPU %", 100),
    ]
    print_table("Whether the machine kept up (lateness in simulated seconds)", results, columns, {})


def show_latency(results: Results, _: argparse.Namespace) -> None:
    columns = [
        Column("requests", "requests"),
        Column("errors", "errors"),
        Column("p50_plain_s", "p50 ms", 1e3, 2),
        Column("p50_added_s", "+ p50 ms", 1e3, 3),
        Column("p99_plain_s", "p99 ms", 1e3, 2),
        Column("p99_added_s", "+ p99 ms", 1e3, 2),
        Column("local_ratio", "known here %", 100),
        Column("redis_ratio", "from Redis %", 100),
        Column("none_ratio", "new %", 100),
    ]
    goals = "goals: + p50 0.15 ms known, 0.8 ms not; + p99 10 ms with Redis stopped"
    print_rows(f"Latency added by --redis at {RATE_PER_S:.0f} requests/s ({goals})", "request", results, columns)


def show_commands(results: Results, _: argparse.Namespace) -> None:
    columns = [
        Column("requests", "requests"),
        Column("errors", "errors"),
        Column("sent", "sent", 1, 2),
        *(Column(f"{name}_sent", name, 1, 3) for name in NAMED),
        Column("other_sent", "other", 1, 3),
        Column("in_scripts", "in scripts", 1, 2),
        Column("router_cpu_ratio", "a router's CPU %", 100),
        Column("redis_cpu_ratio", "Redis CPU %", 100, 1),
        Column("late_p99_s", "client late p99 ms", 1e3, 1),
    ]
    print_rows("Redis commands per request, 2 routers (goal: at most 3 sent)", "streamed", results, columns)


def show_memory(results: Results, _: argparse.Namespace) -> None:
    columns = [
        Column("sessions", "sessions"),
        Column("turns", "turns"),
        Column("errors", "errors"),
        Column("keys", "keys"),
        Column("used_bytes", "MB", 1e-6, 2),
        Column("bytes_per_turn", "bytes a turn end", 1, 1),
        Column("bytes_per_key", "bytes a key", 1, 1),
        Column("bytes_per_million_sessions", "GB for a million sessions", 1e-9, 2),
    ]
    print_rows("Memory of Redis (goal: at most 400 bytes a turn end)", "chats", results, columns)


def show_warm(results: Results, _: argparse.Namespace) -> None:
    reasons = sorted({key for rounds in results.values() for one in rounds for key in one if key.startswith("reason_")})
    columns = [
        Column("turns", "turns"),
        Column("errors", "errors"),
        Column("home_ratio", "same replica %", 100, 1),
        Column("warm_ratio", "and warm %", 100, 1),
        *(Column(key, key.removeprefix("reason_") or "no answer") for key in reasons),
    ]
    print_rows("Next turns through another router (goal: 100 %)", "through", results, columns)


MODES: Mapping[str, Mode] = {
    "hits": Mode("cache hits behind a random balancer (default)", measure_hits, show_hits),
    "latency": Mode("latency that --redis adds", measure_latency, show_latency),
    "commands": Mode("Redis commands per request", measure_commands, show_commands),
    "memory": Mode("bytes in Redis per turn end", measure_memory, show_memory),
    "warm": Mode("next turns through another router, and after a restart", measure_warm, show_warm),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_mutually_exclusive_group()
    for name, mode in MODES.items():
        modes.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=mode.help)
    parser.set_defaults(mode="hits")
    parser.add_argument("--rounds", type=int, default=1, help="each with the next seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--secret", action="store_true", help="give the routers a --redis-secret")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    hits = parser.add_argument_group("the simulated fleet, for --hits and --warm")
    hits.add_argument("--replicas", type=int, default=8)
    hits.add_argument("--kv-tokens", type=int, default=300_000, help="of each replica")
    hits.add_argument("--time-scale", type=float, default=8.0, help="simulated seconds a second")
    hits.add_argument("--stream-interval", type=int, default=64, help="tokens an event after the first")
    hits.add_argument("--routers", type=int, default=4, help="--hits: how many, against one")
    hits.add_argument("--sessions-per-s", type=float, default=5.0, help="--hits: new chats a simulated second")
    hits.add_argument("--minutes", type=float, default=8.0, help="--hits: simulated; the first quarter is not counted")
    hits.add_argument("--sessions", type=int, default=1_000, help="--warm: how many")
    hits.add_argument("--concurrency", type=int, default=8, help="--warm: requests at once")
    more = parser.add_argument_group("other modes")
    more.add_argument("--seconds", type=float, default=20.0, help="--latency, --commands: length of each run")
    more.add_argument("--answer-after-ms", type=float, default=0.0, help="--latency: what the backends take")
    more.add_argument("--rates", type=float, nargs="+", default=[50.0, 200.0, 500.0], help="--commands: requests/s")
    more.add_argument("--turns", type=int, default=20_000, help="--memory: how many")
    options = parser.parse_args()
    options.redis_flags = ["--redis-secret", SECRET] if options.secret else []
    return options


def attempt(mode: Mode, number: int, options: argparse.Namespace) -> dict[str, Figures]:
    try:
        return uvloop.run(mode.measure(number, options))
    except (RuntimeError, OSError) as error:
        print(f"failed: {error}", file=sys.stderr, flush=True)
        return {"failed": {"errors": 1}}


def main() -> int:
    options = parse_arguments()
    raise_open_files_limit()
    mode, results = MODES[options.mode], dict[str, list[Figures]]()
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        for name, figures in attempt(mode, number, options).items():
            results.setdefault(name, []).append(figures)
    mode.show(results, options)
    write_json(options.json, results)
    return 1 if any(one["errors"] for rounds in results.values() for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
