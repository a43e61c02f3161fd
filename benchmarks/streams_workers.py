"""For streams.py --workers: the same requests through `--workers 1` and `--workers 2`, both on one Redis.

Two workers can take twice the load of one only if a request costs no more there, and if they share the load evenly.
Both can be seen on two cores, where the load and the engines take what a second worker would need.
"""

import argparse
import asyncio
import time
from collections.abc import Mapping

import uvloop

from benchmarks.load import Tally, closed_loop, open_loop
from benchmarks.processes import Process, free_ports_in_a_row
from benchmarks.redis_server import redis_server
from benchmarks.report import Column, print_table, write_json
from benchmarks.rig import backends
from benchmarks.routers import Router, routers

WORKERS = (1, 2)
WARM_UP_REQUESTS_EACH = 10
CONNECTIONS, JSON_EACH, STREAMS_EACH = 32, 150, 20
BODY_BYTES = 8_000
IDLE_S = 3.0
IDLE_RATIO = 0.1
"""Of the busiest process's CPU time: below it is no worker, but their parent."""
LOADS = {
    "equal": "Small JSON requests, the same number a second",
    "full": f"JSON requests of 8 kB, {CONNECTIONS} connections without a pause",
    "stream": f"Streams of 64 events, {CONNECTIONS} connections without a pause",
}

Figures = dict[str, float]


def measure_workers(options: argparse.Namespace) -> int:
    results: dict[str, list[Figures]] = {name_of(workers): [] for workers in WORKERS}
    for _ in range(options.rounds):
        for workers in WORKERS:
            results[name_of(workers)].append(measure(workers, options))
    add_bounds(results)
    print_workers(results)
    write_json(options.json, results)
    return 1 if any(one["errors"] for rounds in results.values() for one in rounds) else 0


def name_of(workers: int) -> str:
    return f"--workers {workers}"


def measure(workers: int, options: argparse.Namespace) -> Figures:
    port, *admin_ports = free_ports_in_a_row(1 + workers)
    with redis_server() as redis, backends("--first-delay-ms", "0") as urls:
        flags = ["--workers", str(workers), "--redis", redis.url]
        with routers([(port, admin_ports[0])], urls, [flags]) as (router,):
            return uvloop.run(drive(router, options))


async def drive(router: Router, options: argparse.Namespace) -> Figures:
    await closed_loop(router.port, CONNECTIONS, WARM_UP_REQUESTS_EACH, BODY_BYTES, False)
    before_s = router.process.cpu_s()
    await asyncio.sleep(IDLE_S)
    figures: Figures = {"errors": 0, "idle_cpu_ratio": (router.process.cpu_s() - before_s) / IDLE_S}
    for load in LOADS:
        before, load_cpu_s, started_s = router.process.cpu_s_by_pid(), time.process_time(), time.monotonic()
        tally = await apply(load, router.port, options)
        elapsed_s = time.monotonic() - started_s
        found = costs(router.process, before, tally)
        found["rate_per_s"] = tally.requests / elapsed_s
        found["router_cpu_ratio"] = found["cpu_s"] * tally.requests / elapsed_s
        found["own_cpu_s"] = found["cpu_s"] - figures["idle_cpu_ratio"] * elapsed_s / tally.requests
        found["load_cpu_ratio"] = (time.process_time() - load_cpu_s) / elapsed_s
        figures |= {f"{load}_{key}": value for key, value in found.items()}
        figures["errors"] += tally.errors
    return figures


async def apply(load: str, port: int, options: argparse.Namespace) -> Tally:
    if load == "equal":
        [tally] = await open_loop([port], options.requests_per_s, options.seconds, False, 1)
        return tally
    each = round((STREAMS_EACH if load == "stream" else JSON_EACH) * options.scale)
    return await closed_loop(port, CONNECTIONS, max(1, each), BODY_BYTES, load == "stream")


def costs(process: Process, before: Mapping[int, float], tally: Tally) -> Figures:
    """CPU seconds a request, of all workers, and how much of that the busiest one had."""
    used = {pid: cpu_s - before.get(pid, 0.0) for pid, cpu_s in process.cpu_s_by_pid().items()}
    whole_s, most_s = sum(used.values()), max(used.values())
    return {
        "requests": tally.requests,
        "cpu_s": whole_s / tally.requests,
        "workers": sum(cpu_s > IDLE_RATIO * most_s for cpu_s in used.values()),
        "busiest_ratio": most_s / max(whole_s, 1e-9),
    }


def add_bounds(results: Mapping[str, list[Figures]]) -> None:
    """How many times one worker's load all could take if each had a core: the busiest one is full first."""
    for rounds in results.values():
        for alone, one in zip(results[name_of(1)], rounds, strict=True):
            for load in LOADS:
                one[f"{load}_bound"] = most_per_s(one, load) / most_per_s(alone, load)


def most_per_s(one: Figures, load: str) -> float:
    """Requests a second at which the busiest worker fills a core. What a worker always does is not shared."""
    idle_ratio = one["idle_cpu_ratio"] / one[f"{load}_workers"]
    busiest_s = one[f"{load}_own_cpu_s"] * one[f"{load}_busiest_ratio"]
    return (1 - idle_ratio) / max(busiest_s, 1e-9)


def print_workers(results: Mapping[str, list[Figures]]) -> None:
    for load, title in LOADS.items():
        columns = [
            Column(f"{load}_requests", "requests"),
            Column(f"{load}_cpu_s", "CPU µs / request", 1e6),
            Column(f"{load}_own_cpu_s", "without idle", 1e6),
            Column(f"{load}_workers", "workers at work"),
            Column(f"{load}_busiest_ratio", "busiest worker's share %", 100),
            Column(f"{load}_bound", "x one worker, given cores", 1, 2),
            Column(f"{load}_rate_per_s", "requests/s here"),
            Column(f"{load}_router_cpu_ratio", "workers' CPU %", 100),
            Column(f"{load}_load_cpu_ratio", "load's CPU %", 100),
        ]
        print_table(title, results, columns, {})
