"""Several `warmroute serve` processes in front of the same replicas, and requests that are spread over them."""

import contextlib
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.load import Answer, Pool
from benchmarks.peers import Setup, wait_ready, warmroute_command
from benchmarks.processes import Process, free_ports_in_a_row, running
from benchmarks.rig import SETTLE_S

RECALLS = re.compile(rb'^warmroute_recalls_total\{source="(\w+)"\} (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Router:
    process: Process
    port: int
    admin_port: int

    def recalls(self) -> Counter[str]:
        """Requests so far by where their history was known from: local, redis, none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=5) as answer:
            page = answer.read()
        return Counter({name.decode(): round(float(count)) for name, count in RECALLS.findall(page)})


def places(count: int) -> list[tuple[int, int]]:
    """Ports for so many routers: client and admin port of each."""
    ports = free_ports_in_a_row(2 * count)
    return list(zip(ports[::2], ports[1::2], strict=True))


@contextlib.contextmanager
def routers(
    at: Sequence[tuple[int, int]], replicas: Sequence[str], flags: Sequence[Sequence[str]]
) -> Iterator[list[Router]]:
    """Ready routers on these ports, each with its own flags; they have had time to hear of each other."""
    with contextlib.ExitStack() as stack:
        started = []
        for (port, admin_port), more in zip(at, flags, strict=True):
            setup = Setup(port, admin_port, replicas, Path(), Path())
            command = [*warmroute_command(setup, ""), *more]
            started.append(Router(stack.enter_context(running(command)), port, admin_port))
        for router in started:
            wait_ready(router.process, router.port)
        time.sleep(SETTLE_S)
        yield started


class Balancer(Pool):
    """A load balancer that knows nothing: every request goes to a router drawn at random."""

    def __init__(self, ports: Sequence[int], chance: Random, quick_ack: bool = False) -> None:
        super().__init__(ports[0], quick_ack)
        self.pools = [Pool(port, quick_ack) for port in ports]
        self.chance = chance
        self.requests = Counter(dict.fromkeys(ports, 0))

    async def exchange(self, request: bytes, on_payload: Callable[[bytes], None] | None = None) -> Answer:
        pool = self.chance.choice(self.pools)
        self.requests[pool.port] += 1
        return await pool.exchange(request, on_payload)

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
