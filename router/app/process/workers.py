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
from functools import partial
from pathlib import Path

from router.app.process import certificate
from router.app.process.reload import Files, compare, listen, log, set_log_level
from router.app.process.reloads import Order, Report
from router.app.process.serve import StartError
from router.app.process.stopping import END_S, HURRY, LAST_BYTES_S, Stop, until
from router.app.process.worker import LENGTH_BYTES, READY, RELOAD
from router.app.recording import new_origin
from router.app.roster.engines import keep_running
from router.app.settings.sources import ConfigError, Effective

LOGGER = logging.getLogger("warmroute.workers")

SETTLED_S = 10.0
"""A worker that lived this long did not die of its start: the next one starts at once."""

LONGEST_DELAY_S = 30.0

KILL_MARGIN_S = LAST_BYTES_S + END_S + 0.5
"""Beyond the time that connections and requests have: a worker gives up by itself just before."""


def run_workers(
    effective: Effective,
    client_socket: socket.socket,
    admin_sockets: Sequence[socket.socket],
    ready: Callable[[], None],
) -> None:
    """Run one worker for each admin socket, all on the client socket, until SIGINT or SIGTERM.

    `ready` is called once, when all have started. Then, and at the end, the sockets here are closed. Raises StartError
    when a worker can't start at first; later that is logged and tried again.
    """
    asyncio.run(_Workers(effective, client_socket, admin_sockets, ready).run())


def restart_delay_s(quick_deaths: int) -> float:
    """Return the pause before the next start, after so many deaths in a row soon after a start: 0, 0.5, 1, 2 ... 30."""
    return 0.0 if quick_deaths < 2 else min(LONGEST_DELAY_S, 0.25 * 2.0 ** min(quick_deaths - 1, 10))


class _Workers:
    """The parent's side of all workers."""

    def __init__(
        self,
        effective: Effective,
        client_socket: socket.socket,
        admin_sockets: Sequence[socket.socket],
        ready: Callable[[], None],
    ) -> None:
        self._files = Files(effective)
        self._settings = effective.settings
        """What all workers have, and new ones get."""
        self._origin = new_origin()
        """Of what they record."""
        self._client_socket = client_socket
        self._admin_sockets = admin_sockets
        self._ready = ready
        self._never_started = set(admin_sockets)
        self._living: set[_Worker] = set()
        self._stop = Stop()

    async def run(self) -> None:
        self._stop.listen()
        listening = partial(listen, self._files, lambda: self._settings, self._reload)
        beside = [
            asyncio.ensure_future(work) for work in (self._end_when_asked(), keep_running("reloading", listening))
        ]
        keepers = [asyncio.ensure_future(self._keep(admin_socket)) for admin_socket in self._admin_sockets]
        try:
            await asyncio.gather(*keepers)
        except StartError:
            self._stop.ask()
            await asyncio.gather(*keepers, return_exceptions=True)
            raise
        finally:
            for work in beside:
                work.cancel()
            self._kill()
            self._stop.deafen()

    async def _keep(self, admin_socket: socket.socket) -> None:
        """Have a worker on this admin socket until the end is asked for."""
        port = admin_socket.getsockname()[1]
        quick_deaths = 0
        while not self._stop.wanted.is_set():
            born_s = time.monotonic()
            how = await self._live(admin_socket, port)
            if self._stop.wanted.is_set():
                return
            quick_deaths = 0 if time.monotonic() - born_s >= SETTLED_S else quick_deaths + 1
            delay_s = restart_delay_s(quick_deaths)
            LOGGER.warning("worker with admin port %d ended (%s): a new one starts in %g s", port, how, delay_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wanted.wait(), delay_s)

    async def _live(self, admin_socket: socket.socket, port: int) -> str:
        """Run one worker from start to end; return how it ended. StartError is for those that start at first."""
        try:
            number = 1 + self._admin_sockets.index(admin_socket)
            worker = await _Worker.launch(number, self._client_socket, admin_socket)
            self._living.add(worker)
            try:
                worker.send(self._order(worker, Report()))
                await self._started(worker, admin_socket, port)
                return await worker.ended(partial(self._reload, "admin API"))
            finally:
                self._living.discard(worker)
        except StartError as error:
            if admin_socket in self._never_started and not self._stop.wanted.is_set():
                raise
            return str(error)

    async def _started(self, worker: _Worker, admin_socket: socket.socket, port: int) -> None:
        if self._stop.wanted.is_set():  # while it was launched
            worker.stop()
        await worker.started()
        LOGGER.info("worker with admin port %d is process %d", port, worker.process.pid)
        if self._never_started and not self._stop.wanted.is_set():
            self._never_started.discard(admin_socket)
            if not self._never_started:
                self._ready()

    async def _end_when_asked(self) -> None:
        """Pass a stop on; when it is asked for again, or when time is up, see to it that it comes."""
        await self._stop.wanted.wait()
        for listening in (self._client_socket, *self._admin_sockets):
            listening.close()
        for worker in self._living:
            worker.stop()
        limit_s = self._settings.drain_s + self._settings.grace_s + KILL_MARGIN_S
        await until(self._stop.hurried, asyncio.sleep(limit_s))
        if self._stop.hurried.is_set():
            for worker in self._living:
                worker.hurry()
            await asyncio.sleep(KILL_MARGIN_S)
        self._kill()

    def _reload(self, why: str) -> None:
        """Send all workers the settings of now, or tell them that these can't be used."""
        if self._stop.wanted.is_set():
            return
        try:
            settings, report = compare(self._settings, self._files.read())
            certificate.check(settings)
        except ConfigError as error:
            report = Report(error=str(error))
        else:
            self._settings = settings
            set_log_level(settings)
            if "record" in report.changed:
                self._origin = new_origin()
        for worker in self._living:
            worker.send(self._order(worker, report))
        log(report, why)

    def _order(self, worker: _Worker, report: Report) -> Order:
        settings = None if report.error is not None else self._settings
        return Order(settings, report, self._origin._replace(worker=worker.number))

    def _kill(self) -> None:
        for worker in self._living:
            worker.kill()


@dataclass(eq=False, frozen=True, slots=True)
class _Worker:
    """The parent's side of one worker: its process, and a socket to it that says all there is to say.

    Down go the settings, which have secrets and so stand on no command line, and others whenever they are reloaded; its
    end is the order to stop, and comes from a parent that was killed, too. Up comes whether the worker started, then
    its wish for a reload; its end is the worker's.
    """

    number: int
    """From 1, and for good that of its admin port."""
    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def launch(cls, number: int, client_socket: socket.socket, admin_socket: socket.socket) -> _Worker:
        """Start a process. Raises StartError when the system can't."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _spawn(client_socket.fileno(), admin_socket.fileno(), theirs.fileno())
            except OSError as error:
                ours.close()
                raise StartError(f"can't start a worker: {error.strerror or error}") from None
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(number, process, reader, writer)

    def send(self, order: Order) -> None:
        """Send settings, before it is told to stop; nothing happens where it is gone."""
        data = pickle.dumps(order)
        if not self.writer.is_closing():
            self.writer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)

    async def started(self) -> None:
        """Wait until it serves. Raises StartError with its own words, or with how it ended without any."""
        said = await self._hear(self.reader.readline)
        if said != READY:
            how = await self.ended(lambda: None)
            raise StartError(said.decode().strip() or f"a worker ended before it was ready ({how})")

    async def ended(self, asked: Callable[[], None]) -> str:
        """Wait for its end; return how it ended. `asked` is called whenever it wants a reload."""
        while said := await self._hear(self.reader.readline):
            if said == RELOAD:
                asked()
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

    def hurry(self) -> None:
        """Let it cut its requests, say so to those who wait for them, and end."""
        self.process.send_signal(HURRY)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()


def _spawn(*descriptors: int) -> subprocess.Popen[bytes]:
    """Start a worker that inherits these files.

    SIGINT and SIGHUP stay blocked in it: a terminal sends them to all its processes, and only the parent is to act. A
    blocked signal, other than a handler, is inherited, so there is no moment at which a worker could be hit.
    """
    unsafe_path = [] if str(Path.cwd()) in sys.path else ["-P"]  # a worker finds modules where its parent does
    command = [sys.executable, *unsafe_path, "-m", "router.app.process.worker", *map(str, descriptors)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors)  # noqa: S603 - itself
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
