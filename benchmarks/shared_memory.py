"""shared.py --memory: bytes in Redis for one turn's end."""

import argparse
import asyncio
import sys

from benchmarks.load import Pool
from benchmarks.redis_server import redis_server
from benchmarks.routers import places, routers
from benchmarks.sessions import sharing
from benchmarks.usage_backend import usage_backends

CONNECTIONS = 16
TURNS = 5  # of each session
TTL_S = 3600  # nothing must expire meanwhile

Figures = dict[str, float]


async def talk(port: int, sessions: int, header: bool) -> int:
    """Take all turns of so many sessions, some at a time; return how many turns failed."""
    waiting, errors = [sharing(number, "remembered", header) for number in range(sessions)], 0

    async def client() -> None:
        nonlocal errors
        pool = Pool(port)
        while waiting:
            session = waiting.pop()
            for _ in range(TURNS):
                errors += not (await pool.exchange(session.next_request())).ok(False)
        pool.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return errors


async def measure(header: bool, options: argparse.Namespace) -> Figures:
    sessions = max(1, options.turns // TURNS)
    with usage_backends() as urls, redis_server() as redis:
        flags = ["--redis", redis.url, "--redis-ttl-s", str(TTL_S), *options.redis_flags]
        with routers(places(1), urls, [flags]) as [router]:
            redis.wait_until_quiet()
            keys, used_bytes = redis.keys(), redis.used_bytes()
            errors = await talk(router.port, sessions, header)
            redis.wait_until_quiet()
            keys, used_bytes = redis.keys() - keys, redis.used_bytes() - used_bytes
    turns = sessions * TURNS
    figures = {"sessions": sessions, "turns": turns, "errors": errors, "keys": keys, "used_bytes": used_bytes}
    return figures | {
        "bytes_per_turn": used_bytes / turns,
        "bytes_per_key": used_bytes / max(1, keys),
        "bytes_per_million_sessions": used_bytes / sessions * 1e6,
    }


async def measure_memory(_: int, options: argparse.Namespace) -> dict[str, Figures]:
    results = {}
    for name, header in (("sessions by their prompts", False), ("with x-session-id", True)):
        print(f"  {name}", file=sys.stderr, flush=True)
        results[name] = await measure(header, options)
    return results
