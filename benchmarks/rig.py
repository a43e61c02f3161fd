"""What a measurement stands on: two fresh backends, one router in front of them, and the command line they share."""

import argparse
import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers import DIRECT, absent, default_peers_dir, install, start, wait_ready
from benchmarks.processes import Process, free_ports, running, wait_for_port

BACKEND = Path(__file__).with_name("backend.py")
OPEN_FILES = 16_384
# A router may answer as soon as it has taken one replica into service; the others follow within this.
SETTLE_S = 1.5


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


@contextlib.contextmanager
def backends(*options: str) -> Iterator[list[str]]:
    """The URLs of two fresh backends, started with these options."""
    with contextlib.ExitStack() as stack:
        ports = free_ports(2)
        for port in ports:
            command = [sys.executable, str(BACKEND), "--port", str(port), *options]
            wait_for_port(stack.enter_context(running(command)), port)
        yield [f"http://127.0.0.1:{port}" for port in ports]


@contextlib.contextmanager
def routed(name: str, urls: list[str], peers_dir: Path) -> Iterator[tuple[Process | None, int]]:
    """The process of the router `name` (None for "direct"), ready to serve, and the port to send requests to."""
    if name == DIRECT:
        yield None, port_of(urls[0])
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as home:
        router, port = start(name, urls, Path(home), peers_dir)
        with router as process:
            wait_ready(process, port)
            time.sleep(SETTLE_S)
            yield process, port


def add_shared_arguments(parser: argparse.ArgumentParser, routers: list[str]) -> None:
    parser.add_argument("--routers", default=",".join(routers), help="comma-separated (default: %(default)s)")
    parser.add_argument("--peers-dir", type=Path, default=default_peers_dir(), help="where the Rust routers live")
    parser.add_argument("--install-peers", action="store_true", help="install the Rust routers with pip first")
    parser.add_argument("--json", type=Path, help="write every figure to this file")


def present(options: argparse.Namespace) -> list[str]:
    """The routers asked for that can run here, installed first if asked; says which cannot and why."""
    if options.install_peers:
        install(options.peers_dir)
    names = []
    for name in options.routers.split(","):
        why = absent(name, options.peers_dir)
        if why:
            print(f"absent: {name}: {why}", flush=True)
        else:
            names.append(name)
    return names


def raise_open_files_limit() -> None:
    """Children inherit it: a router with 1,000 open streams holds 2,000 sockets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
