"""Requests that no honest client sends, to a router that has honest ones to serve beside.

`python -m tests.rig.hostile --count 100000` sends so many to a router with simulated replicas and prints what came of
them, and of the clients beside: whether any answer was refused, cut or another's, and what is left over at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.rig.client import Client
from tests.rig.counted import run
from tests.rig.hostile_cases import Case, case
from tests.rig.innocent import innocents
from tests.rig.leaks import Held, leaked
from tests.rig.running import Router
from tests.rig.stage import Stage


@dataclass
class Tally:
    """What came of all cases: statuses by kind, with an e where an engine gave them."""

    by_kind: dict[str, Counter[str]] = field(default_factory=dict)
    own_5xx: list[tuple[Case, bytes]] = field(default_factory=list)

    def add(self, sent: Case, received: bytes) -> None:
        counter = self.by_kind.setdefault(sent.kind, Counter())
        heads = [part for part in received.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]
        for answer in heads:
            engines = b"x-warmroute-replica" in answer
            status = answer[:3].decode() + "e" * engines
            counter[status] += 1
            if status[0] == "5" and not engines:
                self.own_5xx.append((sent, received))
        if not heads:
            counter["none"] += 1

    def table(self) -> str:
        columns = sorted({name for counter in self.by_kind.values() for name in counter})
        lines = ["kind".ljust(12) + "".join(name.rjust(8) for name in columns)]
        for kind, counter in self.by_kind.items():
            lines.append(kind.ljust(12) + "".join(str(counter[name] or "-").rjust(8) for name in columns))
        return "\n".join(lines)


QUIET_S = 1.0
"""A connection from which nothing has come for so long has got all it will get: the case was half a request."""


async def attack(client: Client, sent: Case) -> bytes:
    """Send one case and return all that came back."""
    for piece in sent.pieces:
        client.send(piece)
        if len(sent.pieces) > 1:
            await client.turn()
    if sent.end == "close":
        client.leave()
        return b""
    if sent.end == "reset":
        await client.turn()
        client.reset()
        return b""
    if sent.end == "half":
        client.writer.write_eof()
    received = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while True:
            async with asyncio.timeout(QUIET_S):
                part = await client.reader.read(65_536)
            if not part:
                break
            received += part
    client.leave()
    return received


async def attack_all(stage: Stage, router: Router, seed: int, count: int, at_once: int) -> Tally:
    """Send so many cases, some at once."""
    tally, numbers = Tally(), iter(range(count))

    async def attacker() -> None:
        for number in numbers:
            sent = case(seed, number)
            client = await Client.open(router.port)
            with contextlib.suppress(ConnectionError):
                tally.add(sent, await attack(client, sent))
            client.leave()

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(attacker())
    return tally


UPSTREAM_KEEPALIVE_S = 0.5
"""So that connections to engines, which are kept for the next request, are soon no more when there is none."""


async def _main(seed: int, count: int) -> int:
    async with contextlib.AsyncExitStack() as stack:
        stage = Stage(stack)
        router = await stage.router(*await stage.replicas(3), upstream_keepalive_s=UPSTREAM_KEEPALIVE_S)
        before, began_s = Held.by(router), time.monotonic()
        async with innocents(router) as beside:
            tally = await attack_all(stage, router, seed, count, at_once=24)
        await router.idle()
        seconds = time.monotonic() - began_s
        left = await leaked(router, before)
        down = [replica.replica_id for replica in router.house.fleet if not replica.health.up]
        await stage.clear()
    print(tally.table())
    print(f"{count} cases of seed {seed} in {seconds:.1f} s: {len(tally.own_5xx)} 5xx of the router's own, ", end="")
    print(f"{len(down)} replicas down, {left} leaked (in flight, tasks, files)")
    print(f"{beside.served} answers to honest clients beside: {len(beside.hurt)} refused, cut, changed or crossed")
    for sent, received in tally.own_5xx[:5]:
        print(sent, received[:300], file=sys.stderr)
    for answer in beside.hurt[:5]:
        print(answer, file=sys.stderr)
    return 1 if tally.own_5xx or down or left or beside.hurt else 0


if __name__ == "__main__":
    sys.exit(run(_main, "Send hostile requests to a router with simulated replicas.", "how many", 10_000))
