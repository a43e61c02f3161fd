"""`warmroute serve` as a process, or as a parent with workers: what it prints, its ports, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import httpx

START_S = 40.0
"""Two cores, other tests beside this one: an interpreter with all imports takes its time, and several take more."""


class Served:
    """A running `warmroute serve`, as its two outputs tell of it."""

    def __init__(self, process: asyncio.subprocess.Process, workers: int = 1) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.said: list[str] = []
        self.errors: list[str] = []
        self.port = 0
        self.admin_ports: list[int] = []
        self.pids: dict[int, int] = {}
        """Admin port -> process that listens there; only of workers."""
        self._workers = workers
        self._out, self._err = process.stdout, process.stderr

    @property
    def admin_port(self) -> int:
        return self.admin_ports[0]

    async def ready(self) -> None:
        async with asyncio.timeout(START_S):
            self.said = [(await self._out.readline()).decode() for _ in range(1 + self._workers)]
        ports = []
        for line, pattern in zip(self.said, ["clients  https?", *["admin    http"] * self._workers], strict=True):
            found = re.fullmatch(rf"warmroute: {pattern}://127\.0\.0\.1:([1-9]\d*)/\S*\n", line)
            assert found, (self.said, await self._err.read() if not line else "")
            ports.append(int(found[1]))
        self.port, *self.admin_ports = ports
        if self._workers > 1:
            for _ in self.admin_ports:
                await self.started()
            assert sorted(self.pids) == sorted(self.admin_ports)
            assert len(set(self.pids.values())) == self._workers

    async def line(self, pattern: str) -> re.Match[str]:
        """Read its log up to a line that has this."""
        async with asyncio.timeout(START_S):
            while line := (await self._err.readline()).decode():
                self.errors.append(line)
                if found := re.search(pattern, line):
                    return found
        raise AssertionError(f"no line has {pattern!r}: {self.errors}")

    async def started(self) -> int:
        """Wait until a worker says that it has started; return its admin port."""
        found = await self.line(r"worker with admin port (\d+) is process (\d+)")
        self.pids[int(found[1])] = int(found[2])
        return int(found[1])

    async def ended(self) -> tuple[int, str]:
        """Wait for the end of all processes, for all have the outputs; return the exit code and the log."""
        async with asyncio.timeout(START_S):
            _, rest = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, "".join(self.errors) + rest.decode()

    def send(self, number: signal.Signals, *, whole_group: bool = False) -> None:
        (os.killpg if whole_group else os.kill)(self.process.pid, number)

    @contextlib.contextmanager
    def only(self, admin_port: int) -> Iterator[None]:
        """Stop all workers but one, which then must answer."""
        others = [pid for port, pid in self.pids.items() if port != admin_port]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)

    # The admin API

    async def admin(self, method: str, path: str, admin_port: int | None = None) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            return await client.request(method, f"http://127.0.0.1:{admin_port or self.admin_port}{path}")

    async def decided(self, admin_port: int) -> int:
        """Return how many requests this worker has decided."""
        return len((await self.admin("GET", "/api/decisions", admin_port)).json())

    async def fleet(self, admin_port: int | None = None) -> dict[str, Any]:
        shown: dict[str, Any] = (await self.admin("GET", "/api/fleet", admin_port)).json()
        return shown

    async def metric(self, name: str, admin_port: int | None = None) -> float:
        """Return the value of a metric, with its labels as they are printed."""
        lines = (await self.admin("GET", "/metrics", admin_port)).text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)


async def launch(
    *arguments: str, workers: int = 1, variables: Mapping[str, str] | None = None, through: Sequence[str] = ()
) -> asyncio.subprocess.Process:
    """Start it in a process group of its own, as a shell does; `variables` are added to its environment.

    `through`: a command that ends in running the rest of its arguments.
    """
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    several = ["--workers", str(workers)] if workers > 1 else []
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *through, sys.executable, "-m", "router", "serve", "--port", "0", "--admin-port", "0", *several, *arguments,
        env=clean | dict(variables or {}), stdout=pipe, stderr=pipe, start_new_session=True,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def serving(
    *arguments: str, workers: int = 1, variables: Mapping[str, str] | None = None, through: Sequence[str] = ()
) -> AsyncIterator[Served]:
    """Run it until the end of the block, at which it is killed."""
    served = Served(await launch(*arguments, workers=workers, variables=variables, through=through), workers)
    try:
        await served.ready()
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            served.send(signal.SIGKILL, whole_group=True)
        await served.ended()


async def refused(*arguments: str, workers: int = 1) -> str:
    """A start that must fail: exit code 2, nothing on stdout, one line on stderr, which is returned."""
    process = await launch(*arguments, workers=workers)
    async with asyncio.timeout(START_S):
        out, err = await process.communicate()
    assert (process.returncode, out) == (2, b""), err
    assert re.fullmatch(r"warmroute: [^\n]+\n", err.decode()), err
    return err.decode()
