"""The demo's child processes: simulated replicas and routers, each told to end when the demo does."""

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

START_DEADLINE_S = 30.0
"""A cold disk and a busy machine: the imports take 0.3 s when both are warm."""
STOP_DEADLINE_S = 5.0
"""The router grants running requests --grace-s; the demo's are of no use any more."""


class DemoFailed(Exception):
    """The demo cannot go on; the message is one line."""


@dataclass(frozen=True, slots=True)
class RouterUrls:
    """Where a router listens."""

    clients: str
    admin: str


@contextlib.contextmanager
def simulated_fleet(replicas: int, arguments: Sequence[str]) -> Iterator[list[str]]:
    """Cold simulated replicas in a process of their own; gives their URLs."""
    command = ["sim", "--port", "0", "--replicas", str(replicas), *arguments]
    with _running(command, lines=replicas) as urls:
        yield urls


@contextlib.contextmanager
def router(urls: Sequence[str], arguments: Sequence[str]) -> Iterator[RouterUrls]:
    """A router in front of `urls` in a process of its own."""
    replicas = [part for url in urls for part in ("--replica", url)]
    quiet = ["--no-log-requests", "--log-level", "warning", "--grace-s", "1"]
    with _running(["serve", *replicas, *quiet, *arguments], lines=2) as (clients, admin):
        yield RouterUrls(_url_in(clients), _url_in(admin))


@contextlib.contextmanager
def _running(arguments: Sequence[str], lines: int) -> Iterator[list[str]]:
    """`warmroute` with these arguments, once it has printed so many lines; ended at the end, whatever happens."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    child = subprocess.Popen(  # noqa: S603 - itself, with arguments of the demo
        [sys.executable, "-m", "router", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment,
    )
    try:
        yield _first_lines(child, lines)
    finally:
        _stop(child)


def _first_lines(child: subprocess.Popen[bytes], lines: int) -> list[str]:
    assert child.stdout is not None
    deadline_s = time.monotonic() + START_DEADLINE_S
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while text.count(b"\n") < lines:
            if not selector.select(max(0.0, deadline_s - time.monotonic())):
                raise DemoFailed(f"`{_name(child)}` said nothing for {START_DEADLINE_S:.0f} s")
            part = os.read(child.stdout.fileno(), 65536)
            if not part:
                raise DemoFailed(f"`{_name(child)}` ended with exit code {child.wait()} before it was ready")
            text += part
    return text.decode().splitlines()[:lines]


def _name(child: subprocess.Popen[bytes]) -> str:
    arguments = child.args
    assert isinstance(arguments, list)
    return f"warmroute {arguments[3]}"


def _stop(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    child.terminate()
    try:
        child.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    finally:
        child.stdout.close()


def _url_in(line: str) -> str:
    """`warmroute: clients  http://127.0.0.1:8080/v1` to its URL, without the path."""
    return line.rsplit(maxsplit=1)[-1].removesuffix("/v1").removesuffix("/")
