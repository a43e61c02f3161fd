"""Thousands of open streams through a router on one core: how late each event comes, and what the router takes.

usage: streams.py [--streams 1000,3000] [--routers a,b,c] [--seconds 20] [--rounds 1] [--json FILE] [--workers]

README.md beside this file says what each figure means.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load import quantile
from benchmarks.peers import CACHE_AWARE, DIRECT, NGINX, WARMROUTE
from benchmarks.processes import Process
from benchmarks.report import Column, Results, print_table, ratio_to_lowest, values, write_json
from benchmarks.rig import add_shared_arguments, present, raise_open_files_limit, routed
from benchmarks.streams_generator import Generator
from benchmarks.streams_workers import measure_workers

BODY_BYTES = 8_000
ENGINES = 2
MOST_LATE_S = 0.02
"""Above that the load is not what was asked for: events are written behind their time, in bursts."""

Figures = dict[str, float]


def cores() -> tuple[set[int], set[int]]:
    """One core for the router and another one for the load; the same set twice where there is one only."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[0]}, {usable[-1]}


@contextmanager
def routed_apart(name: str, generator: Generator, peers_dir: Path) -> Iterator[tuple[Process | None, int]]:
    """The router, ready and on a core of its own. The engines answer meanwhile: they are in this very thread."""
    router_cores, load_cores = cores()
    os.sched_setaffinity(0, load_cores)
    # A child inherits the cores of the thread that starts it.
    with ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, router_cores)) as starter:
        opening = routed(name, generator.urls, peers_dir)
        started = starter.submit(opening.__enter__)
        while not started.done():
            generator.poll(0.01)
        try:
            yield started.result()
        finally:
            opening.__exit__(None, None, None)


def measure(name: str, streams: int, options: argparse.Namespace) -> Figures:
    generator = Generator(ENGINES)
    gc.collect()
    gc.disable()
    try:
        with routed_apart(name, generator, options.peers_dir) as (process, port):
            return figures_of(generator, process, port, streams, options)
    finally:
        gc.enable()
        generator.close()


def figures_of(
    generator: Generator, process: Process | None, port: int, streams: int, options: argparse.Namespace
) -> Figures:
    start_bytes = process.rss_bytes() if process else 0
    opened = generator.open(port, streams, BODY_BYTES)
    generator.run(options.warm_up_s, options.events_per_s)
    before = cpu_times(process), time.monotonic(), generator.blocked
    generator.run(options.seconds, options.events_per_s)
    elapsed_s = time.monotonic() - before[1]
    used = [late - early for early, late in zip(before[0], cpu_times(process), strict=True)]
    delays_s = sorted(delay / 1e9 for delay in generator.delays_ns)
    memory = memory_of(process, start_bytes)
    blocked = generator.blocked - before[2]
    cut = generator.end()
    return {
        "streams": opened,
        "stream_errors": streams - opened + cut,
        "lost_errors": generator.sent - generator.received,
        "events": len(delays_s),
        "blocked": blocked,
        **{f"delay_{label}_s": quantile(delays_s, ratio) for label, ratio in (("p50", 0.5), ("p99", 0.99))},
        "delay_max_s": delays_s[-1] if delays_s else float("nan"),
        **(
            {"router_cpu_ratio": used[0] / elapsed_s, "event_cpu_s": used[0] / max(1, len(delays_s))} if process else {}
        ),
        "load_cpu_ratio": used[1] / elapsed_s,
        "load_late_p99_s": quantile(sorted(generator.late_s), 0.99),
        **memory,
    }


def cpu_times(process: Process | None) -> tuple[float, float]:
    return process.cpu_s() if process else 0.0, time.process_time()


def memory_of(process: Process | None, start_bytes: int) -> Figures:
    if process is None:
        return {}
    return {"start_bytes": start_bytes, "rss_bytes": process.rss_bytes(), "pss_bytes": process.pss_bytes()}


def attempt(name: str, streams: int, options: argparse.Namespace) -> Figures:
    """One router that does not start costs its own row, not the others'."""
    try:
        return measure(name, streams, options)
    except (RuntimeError, OSError) as error:
        print(f"failed: {name}: {error}", file=sys.stderr, flush=True)
        return {"start_errors": 1}


def run_rounds(names: list[str], streams: int, options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Every router in every round, freshly started, in an order that shifts by one each round."""
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(options.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            print(f"{streams} streams, round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            results[name].append(attempt(name, streams, options))
    add_delays_over_direct(results)
    return results


def add_delays_over_direct(results: dict[str, list[Figures]]) -> None:
    """What a router adds: a quantile through it minus the same quantile without one, in the same round."""
    for name, rounds in results.items():
        for number, one in enumerate(rounds):
            for label in ("p50", "p99", "max") if name != DIRECT and DIRECT in results else ():
                direct_s = results[DIRECT][number].get(f"delay_{label}_s")
                if direct_s is not None and f"delay_{label}_s" in one:
                    one[f"added_{label}_s"] = one[f"delay_{label}_s"] - direct_s


def print_results(streams: int, results: Results, options: argparse.Namespace) -> None:
    columns = [
        Column("streams", "streams"),
        Column("events", "events"),
        Column("lost_errors", "lost"),
        Column("added_p50_s", "+ p50 ms", 1e3, 2),
        Column("added_p99_s", "+ p99 ms", 1e3, 2),
        Column("added_max_s", "+ max ms", 1e3, 1),
        Column("router_cpu_ratio", "CPU %", 100),
        Column("event_cpu_s", "CPU µs / event", 1e6, 1),
        Column("rss_bytes", "RSS MB", 1e-6, 1),
        Column("pss_bytes", "PSS MB", 1e-6, 1),
    ]
    cpu, memory = "event_cpu_s", "rss_bytes"
    ratios = {
        "CPU / lowest Rust": lambda name: ratio_to_lowest(results, name, CACHE_AWARE, cpu),
        "/ nginx": lambda name: ratio_to_lowest(results, name, [NGINX], cpu),
        "RSS / nginx": lambda name: ratio_to_lowest(results, name, [NGINX], memory),
    }
    pace = f"{options.events_per_s:g} events a second on each"
    print_table(f"{streams} open streams, {pace}, router on one core", results, columns, ratios)
    columns = [
        Column("delay_p50_s", "delay p50 ms", 1e3, 2),
        Column("delay_p99_s", "p99 ms", 1e3, 2),
        Column("load_cpu_ratio", "load's CPU %", 100),
        Column("load_late_p99_s", "events late p99 ms", 1e3, 2),
        Column("blocked", "held back"),
    ]
    print_table("Whether the load kept its pace", results, columns, {})
    for name, rounds in results.items():
        if max((one.get("load_late_p99_s", 0.0) for one in rounds), default=0.0) > MOST_LATE_S:
            print(f"{name}: the load came too late to say anything: leave the machine alone", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_arguments(parser, [DIRECT, WARMROUTE, NGINX, *CACHE_AWARE])
    parser.add_argument("--streams", default="1000,3000", help="open at once, comma-separated (default: %(default)s)")
    parser.add_argument("--events-per-s", type=float, default=20.0, help="on each stream")
    parser.add_argument("--seconds", type=float, default=20.0, help="counted of each router")
    parser.add_argument("--warm-up-s", type=float, default=3.0, help="not counted: the start is not the steady state")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workers", action="store_true", help="only: requests through one worker and through two")
    parser.add_argument("--requests-per-s", type=float, default=300.0, help="for --workers: the load both get")
    parser.add_argument("--scale", type=float, default=1.0, help="for --workers: share of the full number of requests")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    raise_open_files_limit()
    if options.workers:
        return measure_workers(options)
    names = present(options)
    if not names:
        return 2
    everything: dict[str, list[Figures]] = {}
    for streams in map(int, options.streams.split(",")):
        results = run_rounds(names, streams, options)
        print_results(streams, results, options)
        everything |= {f"{streams} {name}": rounds for name, rounds in results.items()}
        write_json(options.json, everything)
    failed = any(values({"": rounds}, "", key) != [0.0] * len(rounds)
                 for rounds in everything.values() for key in ("stream_errors", "lost_errors"))  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
