"""Traffic through Warmroute and other routers in front of the same simulated fleet: TTFT, cache hits, balance.

usage: live.py [--routers a,b,c] [--workloads chat,conversation,agents] [--time-scale 8] [--seed 1] [--rounds 1]

README.md beside this file says what each figure means.
"""

import argparse
import contextlib
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import uvloop

from benchmarks.chats import Chats
from benchmarks.live_workloads import EXCERPT, KINDS, title, with_defaults
from benchmarks.load import quantile
from benchmarks.peers import WARMROUTE
from benchmarks.processes import Process, free_ports_in_a_row, running, wait_for_port
from benchmarks.report import Column, Results, print_table, ratio_to_lowest, write_json
from benchmarks.rig import add_shared_arguments, present, raise_open_files_limit, routed

FLEET = Path(__file__).with_name("fleet.py")
# These two route by prefix as Warmroute does. vllm-router's cache_aware has every replica tokenise every prompt, which
# one machine cannot simulate at speed, so it takes part with its hash of the session header.
RIVALS = ["smg:cache_aware", "sglang-router:cache_aware"]
BY_SESSION_HEADER = ["vllm-router:consistent_hash"]
ROUND_ROBIN = f"{WARMROUTE}:round-robin"

PARTIES = ("router", "fleet", "client")
BUSY_RATIO = 0.7
"""Of a core: above that a process's own queue begins to count in the times."""
PRIOR_TOKENS_PER_S = 8_000
"""Warmroute's default for replicas that have not answered yet, in simulated seconds."""

Figures = dict[str, float]


@contextlib.contextmanager
def fleet(options: argparse.Namespace, seconds_file: Path) -> Iterator[tuple[Process, list[int]]]:
    """A fresh, cold fleet and its ports; `seconds_file` is there when it has ended."""
    ports = free_ports_in_a_row(options.replicas)
    settings = {
        "--replicas": options.replicas,
        "--first-port": ports[0],
        "--time-scale": options.time_scale,
        "--kv-tokens": options.kv_tokens,
        "--stream-interval": options.stream_interval,
        "--seconds-file": seconds_file,
    }
    command = [sys.executable, str(FLEET), *(str(part) for setting in settings.items() for part in setting)]
    with running(command) as process:
        wait_for_port(process, ports[-1])
        yield process, ports


def scaled_settings(time_scale: float) -> dict[str, str]:
    """Warmroute's queue and its first guess of the replicas' speed, by default, but in simulated seconds."""
    return {
        "WARMROUTE_QUEUE_DEPTH_S": f"{1 / time_scale:g}",
        "WARMROUTE_PREFILL_TOKENS_PER_S": f"{PRIOR_TOKENS_PER_S * time_scale:g}",
    }


async def drive(kind: str, name: str, number: int, options: argparse.Namespace, home: Path) -> Figures:
    workload = KINDS[kind].make(options, options.seed + number)
    os.environ.update(scaled_settings(options.time_scale))
    with fleet(options, home / "late.json") as (replicas, ports):
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        with routed(name, urls, options.peers_dir) as (router, port):
            header = options.session_header or name in BY_SESSION_HEADER
            chats = Chats(port, ports, workload, options.time_scale, header)
            gc.freeze()
            before, started_s = cpu_times(router, replicas), time.monotonic()
            await chats.run()
            elapsed_s = time.monotonic() - started_s
            for problem, count in chats.problems.most_common(5):
                print(f"{name}: {count} times: {problem}", file=sys.stderr, flush=True)
            used = [late - early for early, late in zip(before, cpu_times(router, replicas), strict=True)]
    shares = {f"{who}_cpu_ratio": cpu_s / elapsed_s for who, cpu_s in zip(PARTIES, used, strict=True)}
    late_s = json.loads((home / "late.json").read_text())
    return {**chats.figures(), **shares, "fleet_late_p99_s": quantile(late_s, 0.99) * options.time_scale}


def cpu_times(router: Process | None, replicas: Process) -> list[float]:
    return [router.cpu_s() if router else 0.0, replicas.cpu_s(), time.process_time()]


def attempt(kind: str, name: str, number: int, options: argparse.Namespace) -> Figures:
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            return uvloop.run(drive(kind, name, number, options, Path(home)))
    except (RuntimeError, OSError) as error:
        print(f"failed: {name}: {error}", file=sys.stderr, flush=True)
        return {"errors": 1}


def row(kind: str, name: str) -> str:
    return f"{kind} {name}"


def of_better_rival(results: Results, one: str, key: str) -> float | None:
    """The figure of a row over that of the better rival with the same workload and seed."""
    return ratio_to_lowest(results, one, [row(one.partition(" ")[0], rival) for rival in RIVALS], key)


def print_results(results: Results, heading: str) -> None:
    columns = [
        Column("requests", "requests"),
        Column("errors", "errors"),
        Column("hit_ratio", "hit rate", 1, 3),
        Column("ttft_mean_s", "TTFT mean s", 1, 2),
        Column("ttft_p50_s", "p50 s", 1, 2),
        Column("ttft_p95_s", "p95 s", 1, 2),
        Column("ttft_p99_s", "p99 s", 1, 2),
        Column("imbalance", "imbalance", 1, 2),
    ]
    ratios = {
        f"{what} / better rival": partial(of_better_rival, results, key=f"ttft_{what}_s") for what in ("p50", "p95")
    }
    print_table(heading, results, columns, ratios)
    columns = [
        Column("fleet_late_p99_s", "replicas late p99 s", 1, 3),
        Column("client_late_p99_s", "client late p99 s", 1, 3),
        Column("router_cpu_ratio", "router CPU %", 100),
        Column("fleet_cpu_ratio", "replicas CPU %", 100),
        Column("client_cpu_ratio", "client CPU %", 100),
    ]
    print_table("Whether the machine kept up (lateness in simulated seconds)", results, columns, {})
    for name, rounds in results.items():
        for who in busy(rounds):
            print(f"{name}: {who} above {BUSY_RATIO:.0%} of a core: lower --time-scale", flush=True)


def busy(rounds: Sequence[Mapping[str, float]]) -> list[str]:
    """Who of the parties had too much to do in some round."""
    return [who for who in PARTIES if max(one.get(f"{who}_cpu_ratio", 0.0) for one in rounds) > BUSY_RATIO]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_arguments(parser, [WARMROUTE, *RIVALS, *BY_SESSION_HEADER, ROUND_ROBIN])
    parser.add_argument("--workloads", default="chat", help=f"comma-separated, of {', '.join(KINDS)}")
    parser.add_argument("--sessions-per-s", type=float, default=5.0, help="new chats a simulated second")
    parser.add_argument("--conversation", type=Path, default=EXCERPT, help="trace with time stamps")
    parser.add_argument("--coding", type=Path, help="trace of coding agents; none comes with the repository")
    parser.add_argument("--agents", type=int, default=40, help="live at once")
    parser.add_argument("--minutes", type=float, help="simulated, the first quarter not counted (default: by workload)")
    parser.add_argument("--time-scale", type=float, default=8.0, help="simulated seconds a second")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--kv-tokens", type=int, help="of each replica (default: by workload)")
    parser.add_argument("--stream-interval", type=int, default=64, help="tokens an event after the first")
    parser.add_argument("--session-header", action="store_true", help="send x-session-id to every router")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="each with the next seed")
    return parser.parse_args()


def workloads(options: argparse.Namespace) -> list[str]:
    """The workloads asked for that can run here; says which cannot and why."""
    kinds = []
    for kind in options.workloads.split(","):
        if kind not in KINDS:
            print(f"absent: {kind}: unknown workload (known: {', '.join(KINDS)})", flush=True)
        elif kind == "agents" and options.coding is None:
            print("absent: agents: give their trace with --coding FILE", flush=True)
        else:
            kinds.append(kind)
    return kinds


def measure(kind: str, names: Sequence[str], options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Every router's rounds of one workload. All routers get the same seed in a round."""
    results: dict[str, list[Figures]] = {row(kind, name): [] for name in names}
    for number in range(options.rounds):
        for name in names:
            print(f"{kind}, round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            results[row(kind, name)].append(attempt(kind, name, number, options))
    return results


def main() -> int:
    options = parse_arguments()
    raise_open_files_limit()
    names, kinds = present(options), workloads(options)
    if not names or not kinds:
        return 2
    results: dict[str, list[Figures]] = {}
    headings = []
    for kind in kinds:
        own = with_defaults(kind, options)
        headings.append(title(kind, own))
        results |= measure(kind, names, own)
        write_json(options.json, results)  # what there is, should a later workload be broken off
    scale = f"{options.time_scale:g} times the speed of life"
    print_results(results, "\n".join([*headings, scale]))
    return 1 if any(one["errors"] for rounds in results.values() for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
