"""CPU per request and added latency of Warmroute and of other routers, in one run on this machine.

usage: relay.py [--rounds 3] [--routers a,b,c] [--install-peers] [--json FILE] [--memory | --big-body]

README.md beside this file says what each figure means.
"""

import argparse
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from benchmarks.extremes import IDLE_BACKEND, TICKING_BACKEND, measure_big_body, measure_memory
from benchmarks.load import Tally, closed_loop, open_loop, quantile
from benchmarks.peers import CACHE_AWARE, DIRECT, NGINX, ROUND_ROBIN, WARMROUTE
from benchmarks.processes import Process
from benchmarks.report import Column, Results, print_table, ratio_to_lowest, write_json
from benchmarks.rig import add_shared_arguments, backends, port_of, present, raise_open_files_limit, routed

BODY_BYTES = 8_000
STREAM_CONNECTIONS, STREAM_REQUESTS_EACH = 64, 10
# So many that a clock tick is below 2 % of the CPU time of every router here (nginx: 4 %).
JSON_CONNECTIONS, JSON_REQUESTS_EACH = 32, 480
LATENCY_RATE_PER_S = 50.0

Figures = dict[str, float]
Measure = Callable[[str, int, argparse.Namespace], Coroutine[Any, Any, Figures]]


async def cpu_per_request(process: Process | None, port: int, load: tuple[int, int], streamed: bool) -> Figures:
    before_s = process.cpu_s() if process else 0.0
    tally = await closed_loop(port, *load, BODY_BYTES, streamed)
    kind = "stream" if streamed else "json"
    figures = {f"{kind}_{key}": value for key, value in counts(tally).items()}
    if process:
        figures[f"{kind}_cpu_s"] = (process.cpu_s() - before_s) / tally.requests
    return figures


def counts(tally: Tally) -> Figures:
    figures = {"requests": tally.requests, "errors": tally.errors, "events": tally.events}
    return figures | {"total_s": quantile(tally.totals_s(), 0.5), "rate_per_s": tally.requests / tally.elapsed_s}


def scaled(connections: int, each: int, scale: float) -> tuple[int, int]:
    """Connections and requests on each for a smaller load: never none, and no connection without a request."""
    return max(1, min(connections, round(connections * each * scale))), max(1, round(each * scale))


async def measure_cpu(name: str, _: int, options: argparse.Namespace) -> Figures:
    with backends() as urls, routed(name, urls, options.peers_dir) as (process, port):
        await closed_loop(port, 8, 8, BODY_BYTES, False)
        load = scaled(STREAM_CONNECTIONS, STREAM_REQUESTS_EACH, options.scale)
        figures = await cpu_per_request(process, port, load, True)
        load = scaled(JSON_CONNECTIONS, JSON_REQUESTS_EACH, options.scale)
        return figures | await cpu_per_request(process, port, load, False)


async def added_latency(direct: int, port: int, seconds: float, streamed: bool, seed: int) -> Figures:
    tallies = await open_loop([direct, port], LATENCY_RATE_PER_S, seconds, streamed, seed)
    kind = "ttft" if streamed else "json"
    figures: Figures = {"latency_errors": sum(tally.errors for tally in tallies)}
    for label, ratio in (("p50", 0.5), ("p99", 0.99)):
        plain_s, through_s = (quantile(tally.first_bytes_s(), ratio) for tally in tallies)
        figures |= {f"{kind}_added_{label}_s": through_s - plain_s, f"{kind}_direct_{label}_s": plain_s}
    return figures


async def measure_latency(name: str, number: int, options: argparse.Namespace) -> Figures:
    with backends("--first-delay-ms", "0") as urls, routed(name, urls, options.peers_dir) as (_, port):
        direct, seconds = port_of(urls[0]), options.latency_s
        await open_loop([direct, port], LATENCY_RATE_PER_S, min(1.0, seconds), False, number)
        small = await added_latency(direct, port, seconds, False, number)
        streamed = await added_latency(direct, port, seconds, True, number)
        errors = small.pop("latency_errors") + streamed.pop("latency_errors")
        return {**small, **streamed, "latency_errors": errors}


async def measure_relay(name: str, number: int, options: argparse.Namespace) -> Figures:
    figures = await measure_cpu(name, number, options)
    if options.latency_s and not name.endswith(":round_robin"):
        figures |= await measure_latency(name, number, options)
    return figures


async def measure_idle_streams(name: str, _: int, options: argparse.Namespace) -> Figures:
    with backends(*IDLE_BACKEND) as urls, routed(name, urls, options.peers_dir) as (process, port):
        return await measure_memory(process, port, options.idle_streams)


async def measure_stall(name: str, _: int, options: argparse.Namespace) -> Figures:
    with backends(*TICKING_BACKEND) as urls, routed(name, urls, options.peers_dir) as (_process, port):
        return await measure_big_body(port)


def attempt(name: str, measuring: Coroutine[Any, Any, Figures]) -> Figures:
    """One router that does not start costs its own row, not the others'."""
    try:
        return uvloop.run(measuring)
    except (RuntimeError, OSError) as error:
        print(f"failed: {name}: {error}", file=sys.stderr, flush=True)
        return {"start_errors": 1}


def run_rounds(names: list[str], measure: Measure, options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Every router in every round, freshly started, in an order that shifts by one each round."""
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(options.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            results[name].append(attempt(name, measure(name, number, options)))
    return results


def print_cpu(results: Results, kind: str, title: str) -> None:
    key = f"{kind}_cpu_s"
    columns = [
        Column(f"{kind}_requests", "requests"),
        Column(f"{kind}_events", "events"),
        Column(f"{kind}_errors", "errors"),
        Column(f"{kind}_rate_per_s", "requests/s"),
        Column(key, "CPU µs", 1e6),
    ]
    ratios = {
        "/ lowest Rust cache_aware": lambda name: ratio_to_lowest(results, name, CACHE_AWARE, key),
        "/ nginx": lambda name: ratio_to_lowest(results, name, [NGINX], key),
    }
    print_table(f"CPU of the router per {title}", results, columns, ratios)


def print_latency(results: Results) -> None:
    columns = [
        Column("json_direct_p50_s", "direct p50 ms", 1e3, 2),
        Column("json_direct_p99_s", "direct p99 ms", 1e3, 2),
        Column("json_added_p50_s", "+ p50 ms", 1e3, 2),
        Column("json_added_p99_s", "+ p99 ms", 1e3, 2),
        Column("ttft_added_p50_s", "+ TTFT p50 ms", 1e3, 2),
        Column("ttft_added_p99_s", "+ TTFT p99 ms", 1e3, 2),
        Column("latency_errors", "errors"),
    ]
    measured = {name: rounds for name, rounds in results.items() if any("json_added_p50_s" in one for one in rounds)}
    print_table(f"Latency added over direct at {LATENCY_RATE_PER_S:.0f} requests/s", measured, columns, {})


def print_memory(results: Results) -> None:
    columns = [
        Column("streams", "streams"),
        Column("memory_errors", "errors"),
        Column("start_bytes", "RSS at start MB", 1e-6, 1),
        Column("open_bytes", "with the streams MB", 1e-6, 1),
        Column("added_bytes", "added MB", 1e-6, 1),
    ]
    print_table("Resident memory of idle open streams", results, columns, {})


def print_stall(results: Results) -> None:
    columns = [
        Column("events", "events"),
        Column("big_body_errors", "errors"),
        Column("quiet_p50_s", "quiet p50 ms", 1e3, 2),
        Column("quiet_worst_s", "quiet worst ms", 1e3, 2),
        Column("worst_s", "worst ms", 1e3, 2),
        Column("extra_s", "extra ms", 1e3, 2),
    ]
    print_table("Delay of a stream's events while 8 MiB bodies are posted", results, columns, {})


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_arguments(parser, [WARMROUTE, NGINX, *CACHE_AWARE, *ROUND_ROBIN, DIRECT])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of requests")
    parser.add_argument("--latency-s", type=float, default=20.0, help="length of each latency run; 0 leaves it out")
    parser.add_argument("--memory", action="store_true", help="only: memory with idle open streams")
    parser.add_argument("--idle-streams", type=int, default=1_000, help="how many for --memory")
    parser.add_argument("--big-body", action="store_true", help="only: how an 8 MiB body delays another stream")
    return parser.parse_args()


def failed(results: Results) -> bool:
    return any(
        value for rounds in results.values() for one in rounds for key, value in one.items() if key.endswith("errors")
    )


def main() -> int:
    options = parse_arguments()
    raise_open_files_limit()
    names = present(options)
    if not names:
        return 2
    if options.memory:
        results = run_rounds([name for name in names if name != DIRECT], measure_idle_streams, options)
        print_memory(results)
    elif options.big_body:
        results = run_rounds(names, measure_stall, options)
        print_stall(results)
    else:
        results = run_rounds(names, measure_relay, options)
        print_cpu(results, "stream", "streamed request (64 events, 8 kB body)")
        print_cpu(results, "json", "JSON request (8 kB body)")
        if options.latency_s:
            print_latency(results)
    write_json(options.json, results)
    return 1 if failed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
