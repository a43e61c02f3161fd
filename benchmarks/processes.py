"""Child processes of a benchmark: started in their own session, measured and ended as a whole tree."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
END_DEADLINE_S = 8.0


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now. All are held at once, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def free_ports_in_a_row(count: int) -> list[int]:
    """Consecutive ports below the range that outgoing connections are given theirs from."""
    while True:
        first = random.randrange(20_000, 30_000)
        ports = list(range(first, first + count))
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in ports:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return ports


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


class Process:
    """A command with all the processes it starts."""

    def __init__(self, command: Sequence[str], log: Path | None = None) -> None:
        self.command = list(command)
        output = log.open("wb") if log else subprocess.DEVNULL
        self.popen = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        self.pid = self.popen.pid

    def alive(self) -> bool:
        return self.popen.poll() is None

    def tree(self) -> list[int]:
        """The process ids of the command's session: itself, its children and theirs."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(_stat(int(entry.name))[3]) == self.pid:
                    found.append(int(entry.name))
        return found

    def cpu_s(self) -> float:
        """User and system time of the whole tree so far, children that ended included; resolution one clock tick."""
        ticks = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                ticks += sum(int(field) for field in _stat(pid)[11:15])
        return ticks / TICKS_PER_S

    def cpu_s_by_pid(self) -> dict[int, float]:
        """The same of each process alone, without children that ended."""
        found = {}
        for pid in self.tree():
            with contextlib.suppress(OSError):
                found[pid] = sum(int(field) for field in _stat(pid)[11:13]) / TICKS_PER_S
        return found

    def rss_bytes(self) -> int:
        """Resident memory of the whole tree."""
        pages = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * PAGE_BYTES

    def pss_bytes(self) -> int:
        """Memory of the whole tree, a page that several processes share divided among them."""
        kilobytes = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                kilobytes += int(rollup.partition("\nPss:")[2].split()[0])
        return kilobytes << 10

    def end(self) -> None:
        """Ask politely, then kill the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(END_DEADLINE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.wait()


@contextlib.contextmanager
def running(command: Sequence[str], log: Path | None = None) -> Iterator[Process]:
    process = Process(command, log)
    try:
        yield process
    finally:
        process.end()


def wait_for_port(process: Process, port: int, deadline_s: float = 15.0) -> None:
    """Return when something listens on `port`. Errors: RuntimeError when the process ended or the time is over."""
    until = time.monotonic() + deadline_s
    while process.alive() and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"not listening on port {port}: {' '.join(process.command)}")
