"""What a request costs in the router's own code: every step of the data path, with no sockets around it.

usage: path.py [--bodies 1000 8000 ...] [--replicas 4 32 256] [--instructions] [--profile] [--json FILE]

README.md beside this file says what each figure means.
"""

import argparse
import asyncio
import contextlib
import cProfile
import os
import pstats
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from random import Random
from typing import Any, NamedTuple, cast

import uvicorn
import uvloop
from uvicorn.server import ServerState

from benchmarks.backend import COMPLETION, EVENT, STREAM_END, STREAM_HEAD, sized
from benchmarks.load import chat_body, post
from benchmarks.report import Column, print_table, write_json
from router.app.process.serve import spare_the_collector
from router.app.public import public_app
from router.app.settings.model import Settings
from router.app.wiring import build
from router.core.types import EngineReport
from router.proxy.downstream import Downstream, downstream_class
from router.proxy.pool import Pool
from router.proxy.upstream import UpstreamConnection

CHUNKS = 64
KV_TOKENS = 300_000
"""A cache so small that every request evicts what an earlier one brought, as in a router that has run for a while."""
COUNTED, UNCOUNTED = 400, 200
"""Requests whose instructions are told, and those before them: tables grow, and the interpreter adapts its code."""
MOST_COUNT, ROUND_BYTES = 60, 24_000_000
"""Requests a round: some 24 MB of bodies, so that large ones take no longer."""


class Case(NamedTuple):
    """One row."""

    body_bytes: int
    replicas: int
    streamed: bool = False
    log: bool = True

    @property
    def name(self) -> str:
        kind = "streamed" if self.streamed else "JSON"
        return f"{kind}, {self.body_bytes:,} bytes, {self.replicas} replicas" + ("" if self.log else ", no request log")

    @property
    def flags(self) -> list[str]:
        kinds = ["--streamed"] * self.streamed + ["--no-log"] * (not self.log)
        return ["--bodies", str(self.body_bytes), "--replicas", str(self.replicas), *kinds]


class Wire:
    """A transport that takes everything at once and keeps nothing."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self._told = told

    def write(self, data: bytes) -> None:
        self._told()

    def writelines(self, parts: list[bytes]) -> None:
        self._told()

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)}.get(name, default)

    def set_write_buffer_limits(self, *_: Any, **__: Any) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class DataPath:
    """A router as `warmroute serve` builds it, with one client's connection and one to each replica."""

    def __init__(self, case: Case) -> None:
        replicas = [f"http://127.0.0.1:{1000 + number}" for number in range(case.replicas)]
        self.house = build(Settings(replica=tuple(replicas), log_requests=case.log))
        plane, now = self.house.plane, time.monotonic()
        for replica in plane.fleet:
            plane.fleet.observe_engine(replica.replica_id, EngineReport(kv_tokens=KV_TOKENS, block_tokens=16))
            replica.health.succeeded(now)
        self.used: UpstreamConnection | None = None
        for pool in plane.pools.values():
            self._connect(pool)
        protocol = downstream_class(plane, self.house.doorway.door)
        config = uvicorn.Config(public_app(self.house), http=protocol, log_config=None, lifespan="off", ws="none")
        config.load()
        self.client: Downstream = protocol(config, ServerState(), {}, None)
        self.client.connection_made(cast(Any, Wire()))
        event = EVENT % 7
        streamed = [STREAM_HEAD, *[b"%x\r\n%b\r\n" % (len(event), event)] * CHUNKS, STREAM_END]
        self.answer = streamed if case.streamed else [sized(COMPLETION)]

    def _connect(self, pool: Pool) -> None:
        connection = UpstreamConnection(pool)
        connection.connection_made(cast(Any, Wire(lambda: self._use(connection))))
        pool.put(connection)

    def _use(self, connection: UpstreamConnection) -> None:
        self.used = connection

    def ask(self, request: bytes) -> None:
        """One request, from its first byte in to its answer's last byte out."""
        self.client.data_received(request)
        assert self.used is not None, "nothing was sent"
        for part in self.answer:
            self.used.data_received(part)


def requests(case: Case, count: int, first: int) -> list[bytes]:
    """New sessions, from number `first` on: nothing of their prompts is known, which is the dearest case."""
    chance = Random(1)
    words = ["".join(chance.choices("abcdefgh ", k=64)) for _ in range(64)]
    pieces = max(1, (case.body_bytes - 150) // 64)
    return [
        post(chat_body(f"{number} " + "".join(chance.choices(words, k=pieces)), case.streamed))
        for number in range(first, first + count)
    ]


async def count_instructions(case: Case) -> None:
    """Ask under valgrind, which is told to count from here on; it says its count as the process ends."""
    path, made = DataPath(case), requests(case, UNCOUNTED + COUNTED, 0)
    spare_the_collector()
    for request in made[:UNCOUNTED]:
        path.ask(request)
    control = ["callgrind_control", "--zero", str(os.getpid())]
    zero = await asyncio.create_subprocess_exec(*control, stdout=subprocess.DEVNULL)
    await zero.wait()
    for request in made[UNCOUNTED:]:
        path.ask(request)
    path.house.plane.later.flush()
    os._exit(0)  # the interpreter's own end would be counted, too


async def measure(case: Case, rounds: int, count: int, profile: cProfile.Profile | None = None) -> float:
    """Return the CPU seconds of a request, the least of several rounds: so others on the machine matter little."""
    path, seconds = DataPath(case), []
    spare_the_collector()
    for number in range(rounds + 1):
        made = requests(case, count, number * count)
        if profile is not None and number:
            profile.enable()
        began_s = time.thread_time()
        for request in made:
            path.ask(request)
        path.house.plane.later.flush()
        seconds.append((time.thread_time() - began_s) / count)
        if profile is not None:
            profile.disable()
        await asyncio.sleep(0)
    path.house.plane.close()
    return min(seconds[1:])


def count_of(case: Case) -> int:
    return max(2, min(MOST_COUNT, ROUND_BYTES // case.body_bytes))


def instructions(case: Case) -> float:
    """Return the instructions of a request outside the kernel, by valgrind: the same on any machine of a kind."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable]
    command += ["-m", "benchmarks.path", *case.flags, "--rounds", "0"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode or found is None:
        raise SystemExit(f"{' '.join(command)}: {ran.stderr[-2000:]}")
    return int(found[1]) / COUNTED


def cases_of(options: argparse.Namespace) -> list[Case]:
    log = not options.no_log
    if options.bodies and options.replicas:
        return [Case(size, count, options.streamed, log) for size in options.bodies for count in options.replicas]
    sizes = [Case(size, 4) for size in (1_000, 8_000, 64_000, 512_000, 4 << 20)]
    return [*sizes, *(Case(8_000, count) for count in (32, 256)), Case(8_000, 4, True), Case(8_000, 4, log=False)]


@contextlib.contextmanager
def quiet_log() -> Iterator[None]:
    """Write the request log to where it costs a call to the kernel and nothing else."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what a request costs in the router's own code.")
    parser.add_argument("--bodies", type=int, nargs="+", help="sizes in bytes, with --replicas")
    parser.add_argument("--replicas", type=int, nargs="+", help="how many")
    parser.add_argument("--streamed", action="store_true", help=f"answers of {CHUNKS} events")
    parser.add_argument("--no-log", action="store_true", help="without a line a request")
    parser.add_argument("--rounds", type=int, default=12, help="the least of so many is told (default 12)")
    parser.add_argument("--count", type=int, default=0, help="requests a round (default: by their size)")
    parser.add_argument("--instructions", action="store_true", help="count instructions, too (valgrind; minutes a row)")
    parser.add_argument("--profile", action="store_true", help="print where the time of the last row goes")
    parser.add_argument("--json", type=FilePath, help="write the figures to FILE", metavar="FILE")
    options = parser.parse_args()
    if options.instructions and shutil.which("valgrind") is None:
        parser.error("--instructions needs valgrind")
    profile = cProfile.Profile() if options.profile else None
    if not options.rounds:  # what valgrind runs: one round, of which nothing is told
        uvloop.run(count_instructions(cases_of(options)[0]))
        return 0
    results: dict[str, list[dict[str, float]]] = {}
    for case in cases_of(options):
        with quiet_log():
            cpu_s = uvloop.run(measure(case, options.rounds, options.count or count_of(case), profile))
        figures = {"cpu_s": cpu_s}
        if options.instructions:
            figures["instructions"] = instructions(case)
        results[case.name] = [figures]
    columns = [Column("cpu_s", "CPU µs a request", 1e6), Column("instructions", "thousand instructions", 1e-3)]
    print_table("The router's own code, no sockets", results, columns[: 1 + options.instructions], {})
    write_json(options.json, results)
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    return 0


if __name__ == "__main__":
    sys.exit(main())
