"""shared.py: the chat workload through one router, and through several behind a random balancer."""

import argparse
import gc
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from benchmarks.chats import COUNTER, GET_METRICS, Chats
from benchmarks.live import fleet
from benchmarks.load import quantile
from benchmarks.processes import Process
from benchmarks.redis_server import redis_server
from benchmarks.routers import Balancer, places, routers
from router.sim.workload import ChatWorkload

Figures = dict[str, float]

ONE = "1 router"


class SpreadChats(Chats):
    """Chats whose every request goes to a router drawn at random; counts cache hits as the engines do."""

    def __init__(self, ports: list[int], replicas: list[int], workload: ChatWorkload, time_scale: float) -> None:
        super().__init__(ports[0], replicas, workload, time_scale, False)
        self.pool = self.balancer = Balancer(ports, Random(workload.seed), quick_ack=True)
        self.readings: list[tuple[float, float]] = []

    async def uncached_so_far(self) -> list[int]:
        """Prompt tokens that each replica had to compute; notes all replicas' queries and hits."""
        counters = []
        for pool in self.replicas:
            page: list[bytes] = []
            await pool.exchange(GET_METRICS, page.append)
            counters.append({name: float(value) for name, value in COUNTER.findall(b"".join(page))})
        self.readings.append((sum(one[b"queries"] for one in counters), sum(one[b"hits"] for one in counters)))
        return [round(one[b"queries"] - one[b"hits"]) for one in counters]

    def figures(self) -> Figures:
        before, after = self.readings
        queries, hits = (late - early for early, late in zip(before, after, strict=True))
        shares = [count / self.balancer.requests.total() for count in self.balancer.requests.values()]
        spread = {"least_share_ratio": min(shares), "most_share_ratio": max(shares)}
        return super().figures() | spread | {"hit_ratio": hits / max(1.0, queries)}


async def drive(count: int, with_redis: bool, number: int, options: argparse.Namespace, home: Path) -> Figures:
    workload = ChatWorkload(options.sessions_per_s, options.minutes * 60, options.seed + number)
    with ExitStack() as stack:
        replicas, ports = stack.enter_context(fleet(options, home / "late.json"))
        urls, flags = [f"http://127.0.0.1:{port}" for port in ports], list[str]()
        redis = stack.enter_context(redis_server()) if with_redis else None
        if redis:
            flags = ["--redis", redis.url, *options.redis_flags]
        started = stack.enter_context(routers(places(count), urls, [flags] * count))
        parties = {"routers": [router.process for router in started], "redis": [redis.process] if redis else []}
        chats = SpreadChats([router.port for router in started], ports, workload, options.time_scale)
        gc.freeze()
        before, started_s = cpu_s(parties | {"fleet": [replicas]}), time.monotonic()
        await chats.run()
        elapsed_s, after = time.monotonic() - started_s, cpu_s(parties | {"fleet": [replicas]})
        for problem, times in chats.problems.most_common(5):
            print(f"{times} times: {problem}", file=sys.stderr, flush=True)
    shares = {f"{who}_cpu_ratio": (after[who] - before[who]) / elapsed_s for who in after}
    late_s = json.loads((home / "late.json").read_text())
    return {**chats.figures(), **shares, "fleet_late_p99_s": quantile(late_s, 0.99) * options.time_scale}


def cpu_s(parties: dict[str, list[Process]]) -> Figures:
    used = {who: sum((process.cpu_s() for process in processes), 0.0) for who, processes in parties.items()}
    return used | {"client": time.process_time()}


async def measure_hits(number: int, options: argparse.Namespace) -> dict[str, Figures]:
    several = f"{options.routers} routers"
    cases = {
        ONE: (1, False),
        f"{several}, Redis": (options.routers, True),
        f"{several}, no Redis": (options.routers, False),
    }
    results: dict[str, Figures] = {}
    for name, (count, with_redis) in cases.items():
        print(f"  {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="bench-") as home:
            results[name] = await drive(count, with_redis, number, options, Path(home))
        results[name]["of_one_ratio"] = results[name]["hit_ratio"] / results[ONE]["hit_ratio"]
    return results
