"""Requests held in the router or not, offline: the router's core in front of simulated engines, event by event.

usage: holding.py [--sessions-per-s 4.5] [--trace FILE [--agents N | --speed X]] [--minutes 5] [--depth 1] [--seed 1]

docs/how-to/run-benchmarks.md says what each figure means.
"""

import argparse
import statistics
import sys
from pathlib import Path

from benchmarks.holding_demand import coding_agents, open_loop
from benchmarks.load import quantile
from benchmarks.report import Column, Results, print_table, values, write_json
from router.replay.chats import Chats
from router.replay.demand import Workload
from router.replay.plan import Answered, Plan, Result
from router.replay.run import run
from router.replay.warmroute import UNHELD
from router.sim.types import EngineConfig

# Minutes and tokens by workload: agents come with long histories, all of which must be computed once.
WARM_UP_MINUTES = {"chats": 2.0, "agents": 10.0, "open": 1.0}
KV_TOKENS = {"chats": 300_000, "agents": 1_000_000, "open": 1_250_000}
NOTICED_WAIT_S = 0.1
LONG_SHARE = 0.1

Figures = dict[str, float]


def kind_of(options: argparse.Namespace) -> str:
    return "chats" if options.trace is None else "agents" if options.agents else "open"


def warm_up_s(options: argparse.Namespace) -> float:
    minutes = WARM_UP_MINUTES[kind_of(options)] if options.warm_up is None else options.warm_up
    return float(minutes * 60)


def workload_of(options: argparse.Namespace) -> Workload:
    duration_s, batch, kind = warm_up_s(options) + options.minutes * 60, options.batch_ratio, kind_of(options)
    if kind == "chats":
        return Chats(options.sessions_per_s, duration_s, batch_ratio=batch)
    if kind == "agents":
        return coding_agents(options.trace, options.agents, batch, kv_tokens_of(options), warm_up_s(options))
    return open_loop(options.trace, options.speed, batch)


def kv_tokens_of(options: argparse.Namespace) -> int:
    return int(options.kv_tokens or KV_TOKENS[kind_of(options)])


def measure(name: str, seed: int, workload: Workload, options: argparse.Namespace) -> Figures:
    policy, _, queue = name.partition("+")
    plan = Plan(
        policy if queue else policy + UNHELD,
        EngineConfig(kv_tokens=kv_tokens_of(options)),
        options.replicas,
        minutes=warm_up_s(options) / 60 + options.minutes,
        warm_up_minutes=warm_up_s(options) / 60,
        seed=seed,
        queue_depth_s=options.depth,
        max_queue_wait_s=options.max_wait,
        tenants=options.tenants,
        retries=options.retries,
    )
    return figures_of(run(plan, workload))


def figures_of(result: Result) -> Figures:
    answered, extra = result.answered, result.extra
    people = [one for one in answered if not one.batch]
    batch = [one for one in answered if one.batch]
    asked = len(answered) + result.refused
    return {
        "requests": asked,
        "hit_ratio": sum(a.cached_tokens for a in answered) / max(1, sum(a.prompt_tokens for a in answered)),
        **ttfts("", people),
        **ttfts("batch_", batch),
        "long_ttft_p95_s": quantile(sorted(one.ttft_s for one in longest(people)), 0.95),
        "most_s": max((one.ttft_s for one in answered), default=float("nan")),
        "batch_served": len(batch),
        "patient_p95_s": quantile(sorted(one.first_s - one.first_asked_s for one in people), 0.95),
        "refused_ratio": result.refused / max(1, asked),
        "given_up_ratio": extra["given_up"] / max(1, asked),
        "longest_queue": extra["longest_queue"],
        "imbalance": imbalance(result),
        "prediction_ratio": prediction(answered),
        "moved_ratio": sum(one.reason == "spilled" for one in answered) / max(1, len(answered)),
        "decisions_per_request": extra["decisions"] / extra["calls"],
        "router_s": result.router_s / extra["calls"],
        "preemptions": extra["preemptions"],
    }


def imbalance(result: Result) -> float:
    uncached = [0] * result.plan.replicas
    for one in result.answered:
        uncached[one.replica] += one.prompt_tokens - one.cached_tokens
    return max(uncached) / max(1.0, statistics.mean(uncached))


def ttfts(prefix: str, answered: list[Answered]) -> Figures:
    ordered = sorted(one.ttft_s for one in answered)
    return {f"{prefix}ttft_p{percent}_s": quantile(ordered, percent / 100) for percent in (50, 95, 99)}


def longest(answered: list[Answered]) -> list[Answered]:
    """The tenth with most to compute: those whom short work first would make wait."""
    by_work = sorted(answered, key=lambda one: one.cached_tokens - one.prompt_tokens)
    return by_work[: max(1, int(len(by_work) * LONG_SHARE))] if by_work else []


def prediction(answered: list[Answered]) -> float:
    """Median of real over predicted wait, of those that waited."""
    waits = [(one.queued_s, one.queued_predicted_s) for one in answered]
    ratios = [real / max(predicted, 0.01) for real, predicted in waits if real > NOTICED_WAIT_S]
    return statistics.median(ratios) if ratios else float("nan")


def print_results(results: Results, load: str, options: argparse.Namespace) -> None:
    columns = [
        Column("requests", "requests"),
        Column("hit_ratio", "hit rate", 1, 3),
        Column("ttft_p50_s", "TTFT p50 s", 1, 2),
        Column("ttft_p95_s", "p95 s", 1, 2),
        Column("ttft_p99_s", "p99 s", 1, 1),
        Column("long_ttft_p95_s", "long p95 s", 1, 1),
        Column("most_s", "longest s", 1, 0),
        Column("batch_ttft_p50_s", "batch p50 s", 1, 1),
        Column("batch_ttft_p95_s", "batch p95 s", 1, 1),
        Column("batch_served", "batch"),
        Column("refused_ratio", "429 %", 100, 1),
    ]
    ratios = {"p95 / least-load": lambda name: against(results, name)}
    print_table(title_of(load, options), results, columns, ratios)
    columns = [
        Column("longest_queue", "longest queue"),
        Column("prediction_ratio", "wait / predicted", 1, 2),
        Column("patient_p95_s", "p95 with retries s", 1, 1),
        Column("given_up_ratio", "given up %", 100, 1),
        Column("imbalance", "imbalance", 1, 2),
        Column("moved_ratio", "moved %", 100, 1),
        Column("decisions_per_request", "decisions", 1, 1),
        Column("router_s", "core us", 1e6),
        Column("preemptions", "preemptions"),
    ]
    print_table("The queue, and what it costs; a request", results, columns, {})


def against(results: Results, name: str) -> float | None:
    """Interactive TTFT p95 over that of least-load without a queue, median over the seeds."""
    pairs = zip(values(results, name, "ttft_p95_s"), values(results, "least-load", "ttft_p95_s"), strict=False)
    ratios = [own / other for own, other in pairs if other]
    return statistics.median(ratios) if ratios else None


def title_of(load: str, options: argparse.Namespace) -> str:
    return f"{load}, {options.replicas} replicas, {options.minutes:g} minutes, depth {options.depth:g} s"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default="affinity+queue,affinity,least-load,least-load+queue")
    parser.add_argument("--sessions-per-s", type=float, default=4.5, help="new chats a second")
    parser.add_argument("--trace", type=Path, help="a recorded workload instead of chats (JSON lines, gzip)")
    parser.add_argument("--agents", type=int, default=0, help="the trace is of coding agents: so many live at once")
    parser.add_argument("--speed", type=float, default=1.0, help="of a trace with time stamps, against its own")
    parser.add_argument("--minutes", type=float, default=5.0, help="that are counted")
    parser.add_argument("--warm-up", type=float, help="minutes before those (default: by workload)")
    parser.add_argument("--depth", type=float, default=1.0, help="seconds of prefill ahead from which requests wait")
    parser.add_argument("--max-wait", type=float, default=60.0, help="seconds")
    parser.add_argument("--batch-ratio", type=float, default=0.15, help="share of clients that nobody waits for")
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--retries", type=int, default=2, help="of a refused request, after its Retry-After")
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--kv-tokens", type=int, help="of each replica (default: by workload)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="each with the next seed")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    results: dict[str, list[Figures]] = {name: [] for name in options.policies.split(",")}
    workload = workload_of(options)
    for number in range(options.rounds):
        for name, rounds in results.items():
            rounds.append(measure(name, options.seed + number, workload, options))
            print(f"{name}: seed {options.seed + number} done", file=sys.stderr, flush=True)
    print_results(results, workload.name, options)
    write_json(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
