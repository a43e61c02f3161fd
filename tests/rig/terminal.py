"""A command in a terminal of its own: what it shows, keys that are pressed, the terminal's size and its modes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping

DEADLINE_S = 30.0
"""An interpreter with all imports, on two cores with other tests beside it."""

_CONTROL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes standard input the terminal from which Ctrl-C and changes of size come, then becomes the command."""

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class Terminal:
    """A pseudo-terminal with a command of ours in it, as a shell would start it."""

    def __init__(self, controller: int, terminal: int, columns: int, lines: int) -> None:
        self.written = ""
        """All that was written, with what a terminal obeys."""
        self._controller, self._terminal = controller, terminal
        self._news = asyncio.Event()
        self.modes = termios.tcgetattr(terminal)
        self.process: asyncio.subprocess.Process | None = None
        self.resize(columns, lines)
        os.set_blocking(controller, False)
        asyncio.get_running_loop().add_reader(controller, self._read)

    async def start(self, *arguments: str, variables: Mapping[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
        shell = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}  # of the shell's start, as some export them
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CONTROL, sys.executable, "-m", "router", *arguments,
            env=clean | shell | dict(variables), stdin=self._terminal, stdout=self._terminal, stderr=self._terminal,
            start_new_session=True,
        )  # fmt: skip

    def _read(self) -> None:
        try:
            data = os.read(self._controller, 65_536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._controller)
        self.written += data.decode("utf-8", "replace")
        self._news.set()

    @property
    def text(self) -> str:
        """What was written, without what a terminal obeys; a frame's lines follow each other without a break."""
        return _SEQUENCE.sub("", self.written)

    def press(self, keys: str) -> None:
        os.write(self._controller, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._controller, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    async def shows(self, pattern: str) -> re.Match[str]:
        """Wait until it has shown this since it was last told to forget."""
        async with self._deadline(pattern):
            while not (found := re.search(pattern, self.text, re.DOTALL)):
                self._news.clear()
                await self._news.wait()
        return found

    async def writes(self, sequence: str) -> None:
        """Wait until it has been told this, which a terminal obeys and does not show."""
        async with self._deadline(sequence):
            while sequence not in self.written:
                self._news.clear()
                await self._news.wait()

    def forget(self) -> None:
        """Look only at what is written from now on."""
        self.written = ""

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    async def stopped(self) -> None:
        """Wait until the process stands still, as Ctrl-Z lets it."""
        assert self.process is not None
        async with self._deadline("a standstill"):
            await asyncio.to_thread(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    async def ended(self) -> int:
        """Wait for the end of the process; return its exit code."""
        assert self.process is not None
        async with self._deadline("the end"):
            return await self.process.wait()

    @property
    def is_as_before(self) -> bool:
        """Whether its modes are those that it had before the command."""
        return termios.tcgetattr(self._terminal) == self.modes

    @contextlib.asynccontextmanager
    async def _deadline(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(DEADLINE_S):
                yield
        except TimeoutError:
            raise AssertionError(f"{what!r} did not come: {self.text[-4000:]}") from None

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._controller)
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()
        os.close(self._controller)
        os.close(self._terminal)


@contextlib.asynccontextmanager
async def in_terminal(
    *arguments: str, columns: int = 80, lines: int = 24, variables: Mapping[str, str] | None = None
) -> AsyncIterator[Terminal]:
    """Run `warmroute` with these arguments in a terminal, until the end of the block."""
    terminal = Terminal(*pty.openpty(), columns, lines)
    try:
        await terminal.start(*arguments, variables=variables or {})
        yield terminal
    finally:
        await terminal.close()
