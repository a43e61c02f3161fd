"""shared.py --commands: what routers send to Redis for one request."""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from benchmarks.load import Tally, quantile
from benchmarks.redis_server import RedisServer, redis_server
from benchmarks.routers import Balancer, Router, places, routers
from benchmarks.sessions import Session, sharing
from benchmarks.usage_backend import usage_backends

ROUTERS = 2
TURNS = 6  # of a session, as the chat workload's mean
THINK_S = 2.0  # the sessions under way are as many as start a turn in this time
ANSWER_TOKENS = 8
WARM_UP_S = 3.0
WATCHED_S = 1.0
NAMED = ("publish", "evalsha", "mget", "ping")

Figures = dict[str, float]


class Traffic:
    """Streamed turns of many sessions at random times, each turn through a router drawn at random."""

    def __init__(self, ports: Sequence[int], rate_per_s: float, seed: int) -> None:
        self.rate_per_s, self.chance = rate_per_s, Random(seed)
        self.balancer = Balancer(ports, Random(seed))
        self.number = 0
        self.idle = [self.session() for _ in range(round(rate_per_s * THINK_S))]
        for session in self.idle:  # so that from the start some end and begin at any time
            for _ in range(self.chance.randrange(TURNS)):
                session.next_request()
        self.tally, self.late_s = Tally(True), list[float]()

    def session(self) -> Session:
        self.number += 1
        return sharing(self.number, f"at {self.rate_per_s:g}")

    async def run(self, seconds: float) -> None:
        """Send for so long and wait for all answers; figures start anew."""
        self.tally, self.late_s = Tally(True), []
        loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
        due = loop.time()
        end = due + seconds
        while (due := due + self.chance.expovariate(self.rate_per_s)) < end:
            await asyncio.sleep(max(0.0, due - loop.time()))
            self.late_s.append(loop.time() - due)
            tasks.append(asyncio.create_task(self.take_turn()))
        await asyncio.gather(*tasks)

    async def take_turn(self) -> None:
        session = self.idle.pop(self.chance.randrange(len(self.idle))) if self.idle else self.session()
        request = session.next_request(ANSWER_TOKENS)
        self.tally.answers.append(await self.balancer.exchange(request))
        self.idle.append(session if session.turns < TURNS else self.session())


def per_request(calls: Counter[str], scripted: set[str], requests: int) -> Figures:
    """Calls for each request: those sent, by name, and those made by scripts."""
    sent = Counter({name: count for name, count in calls.items() if name not in scripted})
    figures = {f"{name}_sent": sent.pop(name, 0) / requests for name in NAMED}
    figures |= {"other_sent": sent.total() / requests}
    in_scripts = sum(count for name, count in calls.items() if name in scripted)
    return figures | {"sent": sum(figures.values()), "in_scripts": in_scripts / requests}


async def measure_rate(
    started: Sequence[Router], redis: RedisServer, rate_per_s: float, options: argparse.Namespace, seed: int
) -> Figures:
    traffic = Traffic([router.port for router in started], rate_per_s, seed)
    watching = asyncio.create_task(watch(redis, min(WARM_UP_S, options.seconds)))
    await traffic.run(min(WARM_UP_S, options.seconds))
    scripted = await watching
    processes = {"redis": [redis.process], "router": [router.process for router in started]}
    cpu_s = {who: sum(process.cpu_s() for process in some) for who, some in processes.items()}
    before, started_s = redis.calls(), time.monotonic()
    await traffic.run(options.seconds)
    elapsed_s, calls = time.monotonic() - started_s, redis.calls() - before
    figures = per_request(calls, scripted, max(1, traffic.tally.requests))
    for who, some in processes.items():
        used_s = sum(process.cpu_s() for process in some) - cpu_s[who]
        figures[f"{who}_cpu_ratio"] = used_s / elapsed_s / len(some)
    traffic.balancer.close()
    served = {"requests": traffic.tally.requests, "errors": traffic.tally.errors}
    return figures | served | {"late_p99_s": quantile(sorted(traffic.late_s), 0.99)}


async def watch(redis: RedisServer, seconds: float) -> set[str]:
    """Learn, in the middle of the warm-up, which commands come from scripts only: watching costs Redis time."""
    await asyncio.sleep(max(0.0, seconds - WATCHED_S) / 2)
    return await asyncio.to_thread(redis.scripted, min(WATCHED_S, seconds))


async def measure_commands(number: int, options: argparse.Namespace) -> dict[str, Figures]:
    results = {}
    with usage_backends() as urls, redis_server() as redis:
        flags = ["--redis", redis.url, *options.redis_flags]
        with routers(places(ROUTERS), urls, [flags] * ROUTERS) as started:
            for rate_per_s in options.rates:
                print(f"  {rate_per_s:g} requests/s", file=sys.stderr, flush=True)
                figures = await measure_rate(started, redis, rate_per_s, options, options.seed + number)
                results[f"{rate_per_s:g} requests/s"] = figures
    return results
