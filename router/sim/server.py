"""Simulated replicas in one process and one event loop: what tests, demo, benchmarks and `warmroute sim` start."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from router.sim.options import SimOptions
from router.sim.replica import SimReplica

__all__ = ["SimOptions", "SimReplica", "run_sim", "serve_many", "stop_all"]


async def serve_many(
    count: int, options: SimOptions | None = None, *, host: str = "127.0.0.1", first_port: int = 0
) -> list[SimReplica]:
    """Start replicas in this event loop: replica i on `first_port` + i, or each on a free port where that is 0.

    Raises:
        OSError: a port is taken; then none is left running.
    """
    replicas = [SimReplica(options, host=host, port=first_port + index if first_port else 0) for index in range(count)]
    started: list[SimReplica] = []
    try:
        for replica in replicas:
            await replica.start()
            started.append(replica)
    except OSError:
        await stop_all(started)
        raise
    for replica in replicas:
        replica.peers = replicas
    return replicas


async def stop_all(replicas: Sequence[SimReplica]) -> None:
    """Stop these replicas."""
    for replica in replicas:
        await replica.stop()


def run_sim(port: int, replicas: int, options: SimOptions | None = None, *, host: str = "127.0.0.1") -> None:
    """Run replicas on `port`, `port` + 1, ... until SIGINT or SIGTERM; prints one URL a line.

    Raises:
        OSError: a port is taken.
    """
    _run(_serve_until_signal(port, replicas, options, host))


def _run(main: Coroutine[Any, Any, None]) -> None:
    if sys.platform == "win32":
        asyncio.run(main)
        return
    import uvloop

    uvloop.run(main)


async def _serve_until_signal(port: int, count: int, options: SimOptions | None, host: str) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    replicas = await serve_many(count, options, host=host, first_port=port)
    for replica in replicas:
        print(replica.url, flush=True)
    await ended.wait()
    await stop_all(replicas)
