"""A container as an engine would run it: the image's own user, command and variables, on a root that is read-only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.deploy.container.building import Image

DEADLINE_S = 60.0


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listening.getsockname()[1] for listening in taken]


class Box:
    """The image on this machine's network. Of its root nothing can be written but /var/lib/warmroute."""

    def __init__(self, image: Image, state: Path, **variables: str) -> None:
        self._image, self._state, self._variables = image, state, variables
        owner = int(str(image.config["User"]).partition(":")[0])
        state.mkdir(mode=0o700, exist_ok=True)
        os.chown(state, owner, owner)

    def _command(self, words: tuple[str, ...], info: int) -> list[str]:
        user, _, group = str(self._image.config["User"]).partition(":")
        rights = ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        variables: Mapping[str, str] = self._image.variables | self._variables
        return [
            *("setpriv", "--reuid", user, "--regid", group, *rights),
            *("bwrap", "--unshare-user", "--uid", user, "--gid", group, "--unshare-pid", "--as-pid-1", "--unshare-ipc"),
            *("--info-fd", str(info), "--ro-bind", str(self._image.tree), "/", "--proc", "/proc", "--dev", "/dev"),
            *("--bind", str(self._state), "/var/lib/warmroute", "--chdir", self._image.config["WorkingDir"]),
            *("--clearenv", *(word for name, value in variables.items() for word in ("--setenv", name, value))),
            *words,
        ]

    @contextlib.asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[Process]:
        """Run `warmroute` with these arguments, or with the image's own; it is killed at the end of the block."""
        words = (*self._image.config["Entrypoint"], *(arguments or self._image.config["Cmd"]))
        async with self._started(words) as process:
            yield process

    async def run(self, *words: str) -> tuple[int, str]:
        """Run any command; return its exit code and what it said."""
        async with self._started(words) as process:
            return await process.ended()

    @contextlib.asynccontextmanager
    async def _started(self, words: tuple[str, ...]) -> AsyncIterator[Process]:
        reading, writing = os.pipe()
        try:
            started = await asyncio.create_subprocess_exec(
                *self._command(words, writing), pass_fds=[writing], stdout=-1, stderr=asyncio.subprocess.STDOUT
            )
        finally:
            os.close(writing)
        with os.fdopen(reading) as info:
            told = info.read()  # at once, and nothing can come between: what has been started is then sure to be ended
        assert told, (await started.communicate())[0].decode()
        process = Process(started, json.loads(told)["child-pid"])
        try:
            yield process
        finally:
            process.send(signal.SIGKILL)
            await process.ended()


class Process:
    """The first process of a box."""

    def __init__(self, process: asyncio.subprocess.Process, pid: int) -> None:
        assert process.stdout is not None
        self._process, self._out = process, process.stdout
        self.pid = pid
        """As it is seen from outside."""
        self.said = ""

    async def line(self, text: str) -> str:
        """Read what it says, up to a line with this."""
        async with asyncio.timeout(DEADLINE_S):
            while line := (await self._out.readline()).decode():
                self.said += line
                if text in line:
                    return line
        raise AssertionError(f"it has not said {text!r}: {self.said}")

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def ended(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and all that it said."""
        async with asyncio.timeout(DEADLINE_S):
            self.said += (await self._out.read()).decode()
            return await self._process.wait(), self.said
