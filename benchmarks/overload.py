"""More than the fleet can do, live: requests held in the router against least load without a queue.

usage: overload.py [--sessions-per-s 4.5] [--trace FILE [--agents N | --speed X]] [--minutes 5] [--time-scale 5]

docs/how-to/run-benchmarks.md says what each figure means. Exit code 1: a check failed.
"""

import argparse
import gc
import json
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.live import fleet
from benchmarks.load import quantile
from benchmarks.overload_crowd import Asked, Crowd, scripts_of
from benchmarks.processes import free_ports
from benchmarks.report import Column, Results, print_table, write_json
from benchmarks.rig import raise_open_files_limit
from benchmarks.routers import routers

QUEUE, BASELINE = "affinity, queue", "least-load, no queue"
WARM_UP_MINUTES = {"chats": 1.0, "agents": 5.0, "open": 0.5}
KV_TOKENS = {"chats": 300_000, "agents": 1_000_000, "open": 1_250_000}
REPLICAS = {"chats": 4, "agents": 8, "open": 8}
PERIODS = 5
"""Batch must be answered in each of so many equal parts of the run."""
MOST_RATIO = 1 / 3
GROWN_RATIO, GROWN_BYTES = 1.2, 16 << 20
"""How much more memory at the end than in the middle is flat: the index still fills while prompts are new."""
DRAIN_SIMULATED_S = 240.0
LEFT = re.compile(r"^(?:warmroute_inflight_requests|warmroute_queued_requests|warmroute_queued_bytes)\S* (\S+)", re.M)

Figures = dict[str, float]


def kind_of(options: argparse.Namespace) -> str:
    return "chats" if options.trace is None else "agents" if options.agents else "open"


def router_flags(name: str, options: argparse.Namespace) -> list[str]:
    """All times of the queue run as fast as the simulation. Retry-After cannot: it counts whole seconds."""
    if name == BASELINE:
        return ["--policy", "least-load", "--queue-depth-s", "0"]
    wait_s = options.max_wait / options.time_scale
    return ["--queue-depth-s", f"{options.depth / options.time_scale:g}", "--max-queue-wait-s", f"{wait_s:g}"]


async def drive(name: str, seed: int, options: argparse.Namespace, home: Path) -> Figures:
    kind = kind_of(options)
    warm_up_s = 60 * (WARM_UP_MINUTES[kind] if options.warm_up is None else options.warm_up)
    duration_s = warm_up_s + options.minutes * 60
    scripts = scripts_of(
        options.trace, options.agents, options.speed, options.sessions_per_s, warm_up_s, duration_s, seed,
        options.batch_ratio, options.kv_tokens,
    )  # fmt: skip
    port, admin_port = free_ports(2)
    with fleet(options, home / "late.json") as (_, ports):
        urls = [f"http://127.0.0.1:{one}" for one in ports]
        with routers([(port, admin_port)], urls, [router_flags(name, options)]) as (router,):
            crowd = Crowd(port, scripts, duration_s, options.time_scale)
            gc.freeze()
            crowd.start()
            sizes, queued = [], [0.0]
            cpu_s, begun_s = router.process.cpu_s(), time.monotonic()
            for mark_s in (warm_up_s, (warm_up_s + duration_s) / 2, duration_s):
                await crowd.sleep_until(mark_s)
                sizes.append(router.process.rss_bytes())
                queued.append(await crowd.loop.run_in_executor(None, gauge, admin_port, "warmroute_queued_requests"))
            cpu_ratio = (router.process.cpu_s() - cpu_s) / (time.monotonic() - begun_s)
            cut = await crowd.drain(DRAIN_SIMULATED_S / options.time_scale)
            now_s = crowd.now_s()
            left = await counts_left(crowd, admin_port)
    late_s = json.loads((home / "late.json").read_text())
    return {
        **figures_of([one for one in crowd.asked if one.asked_s >= warm_up_s], warm_up_s, duration_s, now_s),
        "cut": cut,
        "queued": max(queued),
        **{f"{when}_bytes": size for when, size in zip(("start", "middle", "end"), sizes, strict=True)},
        "left": left,
        "router_cpu_ratio": cpu_ratio,
        "client_late_p99_s": quantile(sorted(crowd.late_s), 0.99),
        "fleet_late_p99_s": quantile(late_s, 0.99) * options.time_scale,
    }


def page(admin_port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def gauge(admin_port: int, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)", page(admin_port), re.M))


async def counts_left(crowd: Crowd, admin_port: int) -> float:
    """Requests in flight and in the queue, and bytes there, when all clients have gone."""
    left = float("nan")
    for _ in range(50):
        text = await crowd.loop.run_in_executor(None, page, admin_port)
        left = sum(float(value) for value in LEFT.findall(text))
        if not left:
            break
        await crowd.sleep_until(crowd.now_s() + 0.1 * crowd.time_scale)
    return left


def figures_of(asked: Sequence[Asked], warm_up_s: float, duration_s: float, now_s: float) -> Figures:
    refused = [one for one in asked if one.status == 429]
    failed = [one for one in asked if one.status not in (None, 200, 429) or (one.status == 200 and one.problem)]
    answered = [one for one in asked if one.first_byte_s is not None and one.status in (None, 200)]
    people, batch = ([one for one in answered if one.batch is kind] for kind in (False, True))
    # Those that were cut off have waited so long at least.
    silent = [now_s - one.asked_s for one in asked if one.status is None and one.first_byte_s is None and not one.batch]
    ordered = sorted([*map(ttft, people), *silent])
    period_s = (duration_s - warm_up_s) / PERIODS
    served = [sum(warm_up_s + n * period_s <= b.asked_s < warm_up_s + (n + 1) * period_s for b in batch)
              for n in range(PERIODS)]  # fmt: skip
    return {
        "requests": len(asked),
        "hit_ratio": sum(one.cached_tokens for one in answered) / max(1, sum(one.prompt_tokens for one in answered)),
        "ttft_p50_s": quantile(ordered, 0.5),
        "ttft_p95_s": quantile(ordered, 0.95),
        "batch_ttft_p95_s": quantile(sorted(map(ttft, batch)), 0.95),
        "batch_served": len(batch),
        "least_batch": min(served),
        "refused": len(refused),
        "unsaid": sum(one.retry_after_s is None or one.retry_after_s < 1 for one in refused),
        "failed": len(failed),
    }


def ttft(one: Asked) -> float:
    assert one.first_byte_s is not None
    return one.first_byte_s - one.asked_s


def problems(queue: Figures, baseline: Figures) -> list[str]:
    """What is not as it should be."""
    ratio = queue["ttft_p95_s"] / baseline["ttft_p95_s"]
    flat_bytes = queue["middle_bytes"] * GROWN_RATIO + GROWN_BYTES
    checks = {
        f"interactive TTFT p95 is {ratio:.2f} of least load's, not {MOST_RATIO:.2f}": ratio <= MOST_RATIO,
        f"{queue['failed']:.0f} requests failed": not queue["failed"],
        f"{queue['unsaid']:.0f} refusals without Retry-After": not queue["unsaid"],
        "no batch request was answered for a fifth of the time": queue["least_batch"] > 0,
        f"{queue['end_bytes'] / 1e6:.0f} MB at the end": queue["end_bytes"] <= flat_bytes,
        f"{queue['left']:.0f} left in flight or in the queue": queue["left"] == 0,
    }
    return [problem for problem, fine in checks.items() if not fine]


def print_results(results: Results, options: argparse.Namespace) -> None:
    columns = [
        Column("requests", "requests"),
        Column("hit_ratio", "hit rate", 1, 3),
        Column("ttft_p50_s", "TTFT p50 s", 1, 2),
        Column("ttft_p95_s", "p95 s", 1, 2),
        Column("batch_ttft_p95_s", "batch p95 s", 1, 1),
        Column("batch_served", "batch"),
        Column("refused", "429"),
        Column("failed", "failed"),
        Column("cut", "cut off"),
        Column("queued", "queued"),
    ]
    load = {"chats": f"{options.sessions_per_s:g} sessions/s", "agents": f"{options.agents} agents live",
            "open": f"trace at {options.speed:g}x"}[kind_of(options)]  # fmt: skip
    scale = f"{options.replicas} replicas, {options.minutes:g} minutes at {options.time_scale:g}x"
    print_table(f"{load}, {scale}", results, columns, {})
    columns = [
        Column("start_bytes", "MB at start", 1e-6),
        Column("middle_bytes", "middle", 1e-6),
        Column("end_bytes", "end", 1e-6),
        Column("left", "left in flight"),
        Column("router_cpu_ratio", "router CPU %", 100),
        Column("client_late_p99_s", "client late p99 s", 1, 3),
        Column("fleet_late_p99_s", "replicas late p99 s", 1, 3),
    ]
    print_table("The router's memory, and whether the machine kept up", results, columns, {})


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions-per-s", type=float, default=4.5, help="new chats a simulated second")
    parser.add_argument("--trace", type=Path, help="a recorded workload instead of chats (JSON lines, gzip)")
    parser.add_argument("--agents", type=int, default=0, help="the trace is of coding agents: so many live at once")
    parser.add_argument("--speed", type=float, default=1.0, help="of a trace with time stamps, against its own")
    parser.add_argument("--minutes", type=float, default=5.0, help="simulated, that are counted")
    parser.add_argument("--warm-up", type=float, help="simulated minutes before those (default: by workload)")
    parser.add_argument("--time-scale", type=float, default=5.0, help="simulated seconds a second")
    parser.add_argument("--replicas", type=int, help="default: by workload")
    parser.add_argument("--kv-tokens", type=int, help="of each replica (default: by workload)")
    parser.add_argument("--stream-interval", type=int, default=64, help="tokens an event after the first")
    parser.add_argument("--depth", type=float, default=1.0, help="--queue-depth-s, in simulated seconds")
    parser.add_argument("--max-wait", type=float, default=60.0, help="--max-queue-wait-s, in simulated seconds")
    parser.add_argument("--batch-ratio", type=float, default=0.15, help="share of clients that nobody waits for")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    options.kv_tokens = options.kv_tokens or KV_TOKENS[kind_of(options)]
    options.replicas = options.replicas or REPLICAS[kind_of(options)]
    return options


def main() -> int:
    options = parse_arguments()
    raise_open_files_limit()
    results: dict[str, list[Figures]] = {}
    for name in (QUEUE, BASELINE):
        print(name, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            results[name] = [uvloop.run(drive(name, options.seed, options, Path(home)))]
    print_results(results, options)
    write_json(options.json, results)
    found = problems(results[QUEUE][0], results[BASELINE][0])
    for problem in found:
        print(f"FAILED: {problem}", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
