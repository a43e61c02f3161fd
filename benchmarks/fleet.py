"""Simulated replicas in one process, with a watch on how late their event loop runs.

usage: fleet.py --replicas N --first-port P --time-scale S --kv-tokens T --stream-interval K --seconds-file FILE

Ends on SIGTERM and then writes to FILE, as JSON, how late timers fired: wall seconds, ascending. A timer that fires
late is an answer that comes late, so these say whether the machine kept up with the simulation.
"""

import argparse
import asyncio
import gc
import json
import signal
from pathlib import Path

import uvloop

from router.sim.options import SimOptions
from router.sim.server import serve_many, stop_all
from router.sim.types import EngineConfig

PROBE_S = 0.01


async def watch(late_s: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + PROBE_S
        await asyncio.sleep(PROBE_S)
        late_s.append(loop.time() - due_s)


async def serve(arguments: argparse.Namespace) -> None:
    engine = EngineConfig(kv_tokens=arguments.kv_tokens, stream_interval=arguments.stream_interval)
    # Requests kept for tests would hold gigabytes of prompts here. Agents' prompts are longer than the usual limit of a
    # model: the cache is the limit.
    options = SimOptions(("m",), engine, arguments.time_scale, max_model_len=arguments.kv_tokens, recorded_requests=0)
    replicas = await serve_many(arguments.replicas, options, first_port=arguments.first_port)
    ended, late_s = asyncio.Event(), list[float]()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    watching = asyncio.create_task(watch(late_s))
    gc.freeze()
    await ended.wait()
    watching.cancel()
    arguments.seconds_file.write_text(json.dumps(sorted(late_s)))
    await stop_all(replicas)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--first-port", type=int, required=True)
    parser.add_argument("--time-scale", type=float, required=True)
    parser.add_argument("--kv-tokens", type=int, required=True)
    parser.add_argument("--stream-interval", type=int, required=True)
    parser.add_argument("--seconds-file", type=Path, required=True)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
