"""shared.py --latency: two routers side by side on the same backends, one with Redis and one without."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

from benchmarks.load import Pool, Tally, quantile
from benchmarks.redis_server import RedisServer, redis_server
from benchmarks.routers import Router, places, routers
from benchmarks.sessions import Session
from benchmarks.usage_backend import usage_backends

RATE_PER_S = 50.0
KNOWN_SESSIONS = 150  # at that rate three seconds between two turns of one
SEEDING_CONNECTIONS = 8
WARM_UP_S = 2.0
RECOVERY_S = 2.5  # a router may take two seconds to find Redis again
KNOWN, NEW, FOUND = "known session", "new session", "another router's session"
STOPPED = ", Redis stopped"

Figures = dict[str, float]
Requests = Iterator[bytes]


def fresh(name: str) -> Session:
    """A session that shares nothing with any other one."""
    return Session(name, f"system of {name}")


def first_turns(kind: str) -> Requests:
    return (fresh(f"{kind} {number}").next_request() for number in count())


def in_turns(sessions: Sequence[Session]) -> Requests:
    while True:
        for session in sessions:
            yield session.next_request()


def second_turns(kind: str, seeded: int) -> Requests:
    """The turns that follow what `seed` sent; ends after as many."""
    for number in range(seeded):
        session = fresh(f"{kind} {number}")
        session.next_request()
        yield session.next_request()


async def send_all(port: int, requests: Sequence[bytes]) -> int:
    """Send these, a few at a time; return how many failed."""
    waiting, errors = list(requests), 0

    async def client() -> None:
        nonlocal errors
        pool = Pool(port)
        while waiting:
            errors += not (await pool.exchange(waiting.pop())).ok(False)
        pool.close()

    await asyncio.gather(*(client() for _ in range(SEEDING_CONNECTIONS)))
    return errors


async def paired(ports: Sequence[int], sources: Sequence[Requests], seconds: float, seed: int) -> list[Tally]:
    """Random arrivals, `RATE_PER_S` to every port, the ports taking turns: they share the machine's moments."""
    tallies, pools, tasks = [Tally(False) for _ in ports], [Pool(port) for port in ports], []
    chance, loop = Random(seed), asyncio.get_running_loop()

    async def one(which: int, request: bytes) -> None:
        tallies[which].answers.append(await pools[which].exchange(request))

    due = loop.time()
    for number in range(round(RATE_PER_S * seconds) * len(ports)):
        request = next(sources[number % len(ports)])
        due += chance.expovariate(RATE_PER_S * len(ports))
        await asyncio.sleep(max(0.0, due - loop.time()))
        tasks.append(asyncio.create_task(one(number % len(ports), request)))
    await asyncio.gather(*tasks)
    for pool in pools:
        pool.close()
    return tallies


def added(plain: Tally, redis: Tally) -> Figures:
    figures: Figures = {"requests": redis.requests, "errors": plain.errors + redis.errors}
    for label, ratio in (("p50", 0.5), ("p99", 0.99)):
        plain_s, redis_s = (quantile(tally.first_bytes_s(), ratio) for tally in (plain, redis))
        figures |= {f"{label}_plain_s": plain_s, f"{label}_added_s": redis_s - plain_s}
    return figures


class Pair:
    """The router without and the one with Redis, in this order, and how they are measured."""

    def __init__(self, started: Sequence[Router], seconds: float, seed: int) -> None:
        self.plain, self.with_redis = started
        self.ports = [router.port for router in started]
        self.seconds, self.seed = seconds, seed

    async def measure(self, sources: Sequence[Requests], then: Callable[[], None] | None = None) -> Figures:
        """Added latency of these requests, a source for each router; what `then` does happens before any is counted."""
        await paired(self.ports, sources, min(WARM_UP_S, self.seconds), self.seed)
        known_before = self.with_redis.recalls()
        if then:
            then()
        plain, redis = await paired(self.ports, sources, self.seconds, self.seed + 1)
        known = self.with_redis.recalls()
        known.subtract(known_before)
        known_from = {f"{name}_ratio": count / known.total() for name, count in known.items()}
        return added(plain, redis) | known_from


async def measure_pair(pair: Pair, seeded: int, redis: RedisServer) -> dict[str, Figures]:
    known, errors = [], 0
    for port in pair.ports:
        sessions = [fresh(f"known {number}") for number in range(KNOWN_SESSIONS)]
        errors += await send_all(port, [session.next_request() for session in sessions])
        known.append(in_turns(sessions))
    # The known ones first: the mirrors of two small replicas have no room for all.
    runs: list[tuple[str, list[Requests]]] = [
        (KNOWN, known),
        (KNOWN + STOPPED, known),
        (NEW, [first_turns("new") for _ in pair.ports]),
        (FOUND, [second_turns("seeded", seeded) for _ in pair.ports]),
        (NEW + STOPPED, [first_turns("newer") for _ in pair.ports]),
    ]
    results = {}
    for name, sources in runs:
        print(f"  {name}", file=sys.stderr, flush=True)
        if name.endswith(STOPPED):
            results[name] = await pair.measure(sources, redis.freeze)
            redis.thaw()
            await asyncio.sleep(RECOVERY_S)
        else:
            results[name] = await pair.measure(sources)
    results[KNOWN]["errors"] += errors
    return results


async def measure_latency(number: int, options: argparse.Namespace) -> dict[str, Figures]:
    seeded = round(RATE_PER_S * (options.seconds + WARM_UP_S)) + 1
    with usage_backends(2, options.answer_after_ms) as urls, redis_server() as redis:
        flags = ["--redis", redis.url, *options.redis_flags]
        with routers(places(1), urls, [flags]) as [author]:
            openings = [fresh(f"seeded {number}").next_request() for number in range(seeded)]
            errors = await send_all(author.port, openings)
            redis.wait_until_quiet()
        with routers(places(2), urls, [[], flags]) as started:
            pair = Pair(started, options.seconds, options.seed + number)
            results = await measure_pair(pair, seeded, redis)
    results[FOUND]["errors"] += errors
    return results
