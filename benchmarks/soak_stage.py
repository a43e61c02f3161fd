"""The processes of soak.py: engines, Redis and routers that can be killed, frozen and started again."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from benchmarks.live import FLEET
from benchmarks.peers import WARMROUTE
from benchmarks.processes import Process, wait_for_port
from benchmarks.redis_server import redis_server_path

CALL_DEADLINE_S = 10.0
CONFIGS = ("drain_s = 0\nkeepalive_s = 75\n", "drain_s = 0.5\nkeepalive_s = 60\n")
"""A reload goes from one to the other."""


class Program:
    """A process on a port. It may be dead or frozen."""

    def __init__(self, command: Sequence[str], port: int) -> None:
        self.command, self.port = list(command), port
        self.process: Process | None = None

    async def start(self) -> None:
        """Return when it listens."""
        self.process = Process(self.command)
        await asyncio.to_thread(wait_for_port, self.process, self.port)

    async def kill(self) -> None:
        if self.process is not None:
            self.send(signal.SIGKILL)
            await asyncio.to_thread(self.process.popen.wait)
            self.process = None

    def send(self, what: signal.Signals) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, what)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def engine(port: int, time_scale: float, kv_tokens: int, home: Path) -> Program:
    settings = {
        "--replicas": 1,
        "--first-port": port,
        "--time-scale": time_scale,
        "--kv-tokens": kv_tokens,
        "--stream-interval": 16,
        "--seconds-file": home / f"late-{port}.json",
    }
    return Program([sys.executable, str(FLEET), *(str(part) for pair in settings.items() for part in pair)], port)


def redis_program(port: int, home: Path) -> Program:
    keep_nothing = ["--save", "", "--appendonly", "no"]
    return Program(
        [redis_server_path(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), *keep_nothing], port
    )


def flush(port: int) -> None:
    client = Redis(host="127.0.0.1", port=port, socket_timeout=CALL_DEADLINE_S)
    client.flushall()
    client.close()


@dataclass
class Stage:
    """What one run has. The first half of the engines is given by --replica, the others are put in by name."""

    home: Path
    port: int
    admin_ports: list[int]
    engines: list[Program]
    redis: Program | None
    flags: Sequence[str]
    router: Process | None = None
    reloads: int = 0

    @property
    def log(self) -> Path:
        return self.home / "router.log"

    @property
    def config(self) -> Path:
        return self.home / "warmroute.toml"

    @property
    def named(self) -> dict[str, Program]:
        return {f"soak-{one.port}": one for one in self.engines[len(self.engines) // 2 :]}

    async def start(self) -> None:
        programs = [*self.engines, *([self.redis] if self.redis else [])]
        await asyncio.gather(*(program.start() for program in programs))
        self.config.write_text(CONFIGS[0])
        self.router = Process(self._command(), self.log)
        try:
            for port in (*self.admin_ports, self.port):
                await asyncio.to_thread(wait_for_port, self.router, port)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{self.log.read_text()[-2_000:]}") from None
        for name in self.named:
            await self.put_in(name)

    def _command(self) -> list[str]:
        program = str(Path(sys.executable).with_name(WARMROUTE))
        known = [part for one in self.engines[: len(self.engines) // 2] for part in ("--replica", one.url)]
        ports = ["--port", str(self.port), "--admin-port", str(self.admin_ports[0])]
        redis = ["--redis", f"redis://127.0.0.1:{self.redis.port}/0"] if self.redis else []
        workers = ["--workers", str(len(self.admin_ports))]
        return [program, "serve", "--config", str(self.config), *known, *ports, *redis, *workers, *self.flags]

    async def put_in(self, name: str) -> None:
        body = json.dumps({"url": self.named[name].url}).encode()
        for port in self.admin_ports:
            await self.call(port, "PUT", f"/api/replicas/{name}", body)

    async def tell_all(self, method: str, path: str) -> None:
        for port in self.admin_ports:
            await self.call(port, method, path)

    async def reload(self) -> None:
        self.reloads += 1
        self.config.write_text(CONFIGS[self.reloads % len(CONFIGS)])
        if self.router is not None:
            os.kill(self.router.pid, signal.SIGHUP)

    async def call(self, port: int, method: str, path: str, body: bytes | None = None) -> Any:
        """Ask the admin API. Errors: OSError, with what it said where it refused."""
        return json.loads(await asyncio.to_thread(ask, port, method, path, body))

    async def replica_ids(self) -> dict[str, str]:
        """URL -> the id that answers name."""
        return {one["url"]: one["id"] for one in await self.call(self.admin_ports[0], "GET", "/api/replicas")}

    async def page(self, port: int) -> str:
        return await asyncio.to_thread(ask, port, "GET", "/metrics")

    async def stop_router(self) -> int:
        """Ask it to stop; return its exit code."""
        assert self.router is not None
        await asyncio.to_thread(self.router.end)
        return self.router.popen.returncode

    async def clear(self) -> None:
        if self.router is not None and self.router.alive():
            await self.stop_router()
        for program in (*self.engines, *([self.redis] if self.redis else [])):
            await program.kill()


def ask(port: int, method: str, path: str, body: bytes | None = None) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"content-type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=CALL_DEADLINE_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise OSError(f"{method} {path}: {error.code} {error.read(200)!r}") from None
