"""Several router processes on one client port: starts them, replaces those that die, ends them together.

Each worker is a plain subprocess that inherits its sockets. uvicorn's own supervisor gives all its processes the same
sockets and one application, and leaves them alone when it is killed. multiprocessing's spawn adds a process of its own,
runs the main module again, and unblocks the signals that workers must not see.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.app.serve import StartError
from router.app.settings.model import Settings
from router.app.worker import LENGTH_BYTES, READY

LOGGER = logging.getLogger("warmroute.workers")

SETTLED_S = 10.0
"""A worker that lived this long did not die of its start: the next one starts at once."""

LONGEST_DELAY_S = 30.0

KILL_MARGIN_S = 3.0
"""Beyond the grace that running requests have: to close connections and to write the last log lines."""

SAME_SIGNAL_S = 0.5
"""Ctrl-C in a wrapper and `timeout` signal a process and then its group: so near together they are one wish."""


def run_workers(
    settings: Settings, client_socket: socket.socket, admin_sockets: Sequence[socket.socket], ready: Callable[[], None]
) -> None:
    """Run one worker for each admin socket, all on the client socket, until SIGINT or SIGTERM.

    `ready` is called once, when all have started. Then, and at the end, the sockets here are closed. Raises StartError
    when a worker can't start at first; later that is logged and tried again.
    """
    asyncio.run(_Workers(settings, client_socket, admin_sockets, ready).run())


def restart_delay_s(quick_deaths: int) -> float:
    """Return the pause before the next start, after so many deaths in a row soon after a start: 0, 0.5, 1, 2 ... 30."""
    return 0.0 if quick_deaths < 2 else min(LONGEST_DELAY_S, 0.25 * 2.0 ** min(quick_deaths - 1, 10))


class _Workers:
    """The parent's side of all workers."""

    def __init__(
        self,
        settings: Settings,
        client_socket: socket.socket,
        admin_sockets: Sequence[socket.socket],
        ready: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._client_socket = client_socket
        self._admin_sockets = admin_sockets
        self._ready = ready
        self._never_started = set(admin_sockets)
        self._living: set[_Worker] = set()
        self._stopping = asyncio.Event()
        self._stopped_s = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        keepers = [asyncio.ensure_future(self._keep(admin_socket)) for admin_socket in self._admin_sockets]
        try:
            await asyncio.gather(*keepers)
        except StartError:
            self._stop()
            await asyncio.gather(*keepers, return_exceptions=True)
            raise
        finally:
            self._kill()
            # All is over, and a signal while the interpreter ends would only spoil the exit code.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})

    async def _keep(self, admin_socket: socket.socket) -> None:
        """Have a worker on this admin socket until the end is asked for."""
        port = admin_socket.getsockname()[1]
        quick_deaths = 0
        while not self._stopping.is_set():
            born_s = time.monotonic()
            how = await self._live(admin_socket, port)
            if self._stopping.is_set():
                return
            quick_deaths = 0 if time.monotonic() - born_s >= SETTLED_S else quick_deaths + 1
            delay_s = restart_delay_s(quick_deaths)
            LOGGER.warning("worker with admin port %d ended (%s): a new one starts in %g s", port, how, delay_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _live(self, admin_socket: socket.socket, port: int) -> str:
        """Run one worker from start to end; return how it ended. StartError is for those that start at first."""
        try:
            worker = await _Worker.launch(self._settings, self._client_socket, admin_socket)
            self._living.add(worker)
            try:
                await self._started(worker, admin_socket, port)
                return await worker.ended()
            finally:
                self._living.discard(worker)
        except StartError as error:
            if admin_socket in self._never_started and not self._stopping.is_set():
                raise
            return str(error)

    async def _started(self, worker: _Worker, admin_socket: socket.socket, port: int) -> None:
        if self._stopping.is_set():  # while it was launched
            worker.stop()
        await worker.started()
        LOGGER.info("worker with admin port %d is process %d", port, worker.process.pid)
        if self._never_started and not self._stopping.is_set():
            self._never_started.discard(admin_socket)
            if not self._never_started:
                self._ready()

    def _signalled(self) -> None:
        if not self._stopping.is_set():
            self._stop()
        elif time.monotonic() - self._stopped_s > SAME_SIGNAL_S:
            self._kill()

    def _stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._stopped_s = time.monotonic()
        for listening in (self._client_socket, *self._admin_sockets):
            listening.close()
        for worker in self._living:
            worker.stop()
        asyncio.get_running_loop().call_later(self._settings.grace_s + KILL_MARGIN_S, self._kill)

    def _kill(self) -> None:
        for worker in self._living:
            worker.kill()


@dataclass(eq=False, frozen=True, slots=True)
class _Worker:
    """The parent's side of one worker: its process, and a socket to it that says all there is to say.

    Down go the settings, which have secrets and so stand on no command line; its end is the order to stop, and comes
    from a parent that was killed, too. Up comes whether the worker started; its end is the worker's.
    """

    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def launch(cls, settings: Settings, client_socket: socket.socket, admin_socket: socket.socket) -> _Worker:
        """Start a process. Raises StartError when the system can't."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _spawn(client_socket.fileno(), admin_socket.fileno(), theirs.fileno())
            except OSError as error:
                ours.close()
                raise StartError(f"can't start a worker: {error.strerror or error}") from None
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        data = pickle.dumps(settings)
        writer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        return cls(process, reader, writer)

    async def started(self) -> None:
        """Wait until it serves. Raises StartError with its own words, or with how it ended without any."""
        said = await self._hear(self.reader.readline)
        if said != READY:
            how = await self.ended()
            raise StartError(said.decode().strip() or f"a worker ended before it was ready ({how})")

    async def ended(self) -> str:
        """Wait for its end; return how it ended."""
        await self._hear(self.reader.read)
        self.writer.close()
        code = self.process.wait()  # the system closes a process's sockets in the course of ending it
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def _hear(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """Read; b"" from a process that died before it had read all that we sent."""
        try:
            return await read()
        except ConnectionError:
            return b""

    def stop(self) -> None:
        """Let it finish its requests and end."""
        with contextlib.suppress(OSError):
            self.writer.write_eof()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()


def _spawn(*descriptors: int) -> subprocess.Popen[bytes]:
    """Start a worker that inherits these files.

    SIGINT stays blocked in it: Ctrl-C reaches all processes of the terminal, and only the parent is to act on it. A
    blocked signal, other than a handler, is inherited, so there is no moment at which a worker could be hit.
    """
    unsafe_path = [] if str(Path.cwd()) in sys.path else ["-P"]  # a worker finds modules where its parent does
    command = [sys.executable, *unsafe_path, "-m", "router.app.worker", *map(str, descriptors)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
