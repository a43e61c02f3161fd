"""One host of a network (tests/rig/network.py): its processes, and sockets that are in its network."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rig.client import DEADLINE_S

LOOK_S = 0.005
START_DEADLINE_S = 30.0
"""An interpreter with all imports, on two cores with other tests beside it."""

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET; os.setns is there from Python 3.12 on."""


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Running:
    """A command under way. What it writes, errors too, is kept."""

    def __init__(self, argv: Sequence[str], entered: asyncio.subprocess.Process) -> None:
        self.written = ""
        self.pid = 0
        """As this machine counts; the host itself has another number for it."""
        self._argv = argv
        self._entered = entered
        self._news = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())

    async def find(self) -> None:
        """Learn its number; it is left at 0 if it has ended already."""
        while not self.ended:
            if found := children(self._entered.pid):
                self.pid = found[0]
                return
            await asyncio.sleep(LOOK_S)

    async def _read(self) -> None:
        assert self._entered.stdout is not None
        while data := await self._entered.stdout.read(65_536):
            self.written += data.decode("utf-8", "replace")
            self._news.set()
        self._news.set()

    @property
    def ended(self) -> bool:
        return self._entered.returncode is not None

    async def says(self, pattern: str) -> re.Match[str]:
        """Wait until this is in what it has written; an end without it fails the test."""
        async with self._deadline(f"says {pattern!r}"):
            while not (found := re.search(pattern, self.written)):
                assert not self._reading.done(), f"{self} ended without {pattern!r}: {self.written}"
                self._news.clear()
                await self._news.wait()
        return found

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.pid and not self.ended:
                os.kill(self.pid, number)

    async def wait(self, deadline_s: float = START_DEADLINE_S) -> int:
        """Return its exit code, once it has ended and all it wrote is here; -15 if SIGTERM ended it."""
        async with self._deadline("ends", deadline_s):
            code = await self._entered.wait()
            await self._reading
        return code

    @contextlib.asynccontextmanager
    async def _deadline(self, what: str, deadline_s: float = START_DEADLINE_S) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(deadline_s):
                yield
        except TimeoutError:
            raise AssertionError(f"not after {deadline_s:.0f} s: {self} {what}: {self.written}") from None

    def __str__(self) -> str:
        return " ".join(self._argv)


class Host:
    """One host. `Network` makes and ends it."""

    def __init__(
        self, name: str, aliases: tuple[str, ...], addresses: list[str], first: asyncio.subprocess.Process
    ) -> None:
        self.name = name
        self.aliases = aliases
        self.addresses = addresses
        self._first = first
        self.running: list[Running] = []

    @property
    def pid(self) -> int:
        """Of the process whose namespaces are the host's."""
        return self._first.pid

    async def start(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: str | Path = "/"
    ) -> Running:
        """Start a command. Its environment is that of a new shell, and `env`."""
        words = [str(word) for word in argv]
        entered = await self._enter(words, env, cwd, subprocess.DEVNULL, subprocess.STDOUT)
        running = Running(words, entered)
        self.running.append(running)
        await running.find()
        return running

    async def run(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: str | Path = "/",
        stdin: str = "", deadline_s: float = START_DEADLINE_S,
    ) -> Ran:  # fmt: skip
        """Run a command to its end. One that does not end in time fails the test."""
        keyboard = subprocess.PIPE if stdin else subprocess.DEVNULL  # uvloop minds writing to who has ended already
        process = await self._enter([str(word) for word in argv], env, cwd, keyboard, subprocess.PIPE)
        try:
            async with asyncio.timeout(deadline_s):
                out, err = await process.communicate(stdin.encode() or None)
        except TimeoutError:
            raise AssertionError(f"not after {deadline_s:.0f} s: {argv} ends") from None
        assert process.returncode is not None
        return Ran(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    async def _enter(
        self, argv: list[str], env: Mapping[str, str] | None, cwd: str | Path, stdin: int, stderr: int
    ) -> asyncio.subprocess.Process:
        # Entering the mounts leaves any folder that the process was in.
        command = [*enter(self.pid, "--net", "--mount", "--uts", "--pid"), "env", f"--chdir={cwd}", *argv]
        return await asyncio.create_subprocess_exec(
            *command, env={**new_shell(), **(env or {})}, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr
        )

    async def end(self) -> None:
        """End all its processes and their network with them."""
        assert self._first.stdin is not None
        self._first.stdin.close()
        async with asyncio.timeout(DEADLINE_S):
            # When this one has ended, so have all others: it is the first of their process namespace.
            await self._first.wait()
            for running in self.running:
                await running.wait()

    # Sockets in its network, for the test's own use

    def make_socket(self, kind: int = socket.SOCK_STREAM, family: int = socket.AF_INET) -> socket.socket:
        """Return a new socket that is in this host's network for good."""
        return _made_in(f"/proc/{self.pid}/ns/net", lambda: socket.socket(family, kind))

    def listening(self, address: str, port: int) -> socket.socket:
        """Return a socket that listens there."""
        made = self.make_socket(family=_family(address))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(128)
        return made

    async def connected(self, address: str, port: int) -> socket.socket:
        """Return a socket that this host has connected to an address. Raises OSError if it can't be."""
        made = self.make_socket(family=_family(address))
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, (address, port))
        except BaseException:
            made.close()
            raise
        return made


def enter(pid: int, *namespaces: str) -> list[str]:
    """The beginning of a command that is run in these namespaces of a process."""
    entered = [f"--pid=/proc/{pid}/ns/pid_for_children" if name == "--pid" else name for name in namespaces]
    return ["nsenter", f"--target={pid}", *entered, "--"]


def children(pid: int) -> list[int]:
    """Return the numbers of a process's children; none when it has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def new_shell() -> dict[str, str]:
    """Return what a shell of this machine would have; the programs of this Python are on its PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    return {"PATH": path, "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}


def _made_in(namespace: str, make: Callable[[], socket.socket]) -> socket.socket:
    """Make it in a thread that enters this network and ends there: which network one is in is a thread's own."""
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def enter_and_make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            with Path(namespace).open() as file:
                if libc.setns(file.fileno(), _NEW_NETWORK):
                    raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
            made.append(make())
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter_and_make)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
