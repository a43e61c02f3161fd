"""In-flight counts return to zero after any interleaving of answers, faults and early leaves, never going below."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import CHAT, DEADLINE_S, Client, chat, request
from tests.rig.forms import FORMS
from tests.rig.running import Router
from tests.rig.stage import Stage

VISITS = 160
AT_ONCE = 12

ONE_REQUEST: list[Callable[[Random], Fault]] = [
    lambda chance: Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, count=chance.randint(1, 3), abort=chance.random() < 0.5),
    lambda chance: Fault(FaultKind.CLOSE_REUSED, count=chance.randint(1, 3), abort=chance.random() < 0.5),
    lambda chance: Fault(FaultKind.DIE_AFTER_CHUNKS, count=2, after_chunks=chance.randint(0, 8)),
    lambda chance: Fault(FaultKind.DIE_AFTER_CHUNKS, count=2, after_chunks=chance.randint(0, 8), abort=False),
    lambda chance: Fault(FaultKind.STREAM_ERROR, count=2, after_chunks=chance.randint(0, 4)),
    lambda chance: Fault(FaultKind.STATUS, count=3, status=chance.choice([400, 404, 429, 500, 502, 503, 504])),
    lambda _: Fault(FaultKind.SHUTDOWN_500, count=2),
    lambda _: Fault(FaultKind.HANG, count=1),
    lambda _: Fault(FaultKind.SLOW_HEADERS, count=2, delay_s=0.05),
    lambda _: Fault(FaultKind.CLOSE_DELIMITED, count=2),
    lambda _: Fault(FaultKind.CHUNKED_JSON, count=2),
    lambda _: Fault(FaultKind.SIZED_STREAM, count=2),
    lambda _: Fault(FaultKind.TRAILERS, count=2),
    lambda _: Fault(FaultKind.INTERIM, count=2, status=100),
]
WHOLE_REPLICA = [
    FaultKind.REFUSE,
    FaultKind.SILENT_SIGTERM,
    FaultKind.ENGINE_DIED,
    FaultKind.RESTART_COLD,
    FaultKind.SLEEP,
]


class Storm:
    """Clients that come and go at random, and replicas that fail at random, all from one seed."""

    def __init__(self, stage: Stage, router: Router, replicas: list[SimReplica], seed: int) -> None:
        self.stage = stage
        self.router = router
        self.replicas = replicas
        self.chance = Random(seed)
        self.left = VISITS

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self.client())

    async def client(self) -> None:
        while self.left > 0:
            self.left -= 1
            self.hurt()
            visitor = await self.stage.client(self.router)
            # As broken streams and reset connections end:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.visit(visitor)
            visitor.leave()
            self.check()

    def hurt(self) -> None:
        chance = self.chance
        replica = chance.choice(self.replicas)
        roll = chance.random()
        if roll < 0.35:
            replica.faults.set(chance.choice(ONE_REQUEST)(chance))
        elif roll < 0.45:
            replica.faults.set(Fault(chance.choice(WHOLE_REPLICA)))
        elif roll < 0.65:
            replica.faults.clear()

    def message(self) -> bytes:
        chance = self.chance
        form = chance.choice(list(FORMS.values()))
        text = chance.choice(["hi", "some words " * 40, f"{chance.random()} other words " * 200])
        session = [("x-session-id", str(chance.randint(1, 5)))] if chance.random() < 0.4 else []
        tokens = chance.randint(1, 40)
        stream = chance.random() < 0.6
        return form.request(text, headers=session, stream=stream, max_tokens=tokens, ignore_eos=True)

    async def visit(self, client: Client) -> None:
        ways = [self.reset, self.leave_after_head, self.leave_mid_stream, self.leave_mid_body, self.pipeline]
        await self.chance.choice([*ways, self.stay, self.stay, self.stay])(client)

    async def reset(self, client: Client) -> None:
        client.send(self.message())
        await client.turn()
        client.reset()

    async def leave_after_head(self, client: Client) -> None:
        client.send(self.message())
        await client.head()

    async def leave_mid_stream(self, client: Client) -> None:
        client.send(self.message())
        answer = await client.head()
        chunks = self.chance.randint(1, 6) if answer.header("transfer-encoding") else 0
        while chunks and await client.chunk(answer):
            chunks -= 1

    async def leave_mid_body(self, client: Client) -> None:
        client.send(request(CHAT, b'{"messages":', headers=[("content-length", "500")]))
        await client.turn()

    async def pipeline(self, client: Client) -> None:
        client.send(self.message() + request("/livez") + self.message())
        for _ in range(3):
            await client.answer()

    async def stay(self, client: Client) -> None:
        for _ in range(self.chance.randint(1, 3)):
            answer = await client.ask(self.message())
            if answer.header("connection") == "close":
                return

    def check(self) -> None:
        for replica in self.router.house.fleet:
            assert replica.ledger.streams >= 0
            assert replica.ledger.uncached_tokens >= 0


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_storm_of_faults_and_leaves_all_counts_are_zero_and_the_fleet_serves(
    stage: Stage, seed: int
) -> None:
    replicas = await stage.replicas(3, time_scale=20.0)
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1, silence_timeout_s=1.0)
    storm = Storm(stage, router, replicas, seed)
    await storm.run()
    for replica in replicas:
        replica.faults.clear()
    await router.idle()
    for known in router.house.fleet:
        assert (known.ledger.streams, known.ledger.uncached_tokens) == (0, 0)
        assert known.mirror.held_bytes == 0, "blocks are held for a request that is over"
    for replica in replicas:
        await replica.wait_for(lambda: replica.engine.running + replica.engine.waiting == 0, DEADLINE_S)  # noqa: B023
    await router.until(lambda: not any(known.report.asleep for known in router.house.fleet))
    assert (await stage.ask(router, chat())).status == 200
    kinds = {str(record.outcome) for record in router.records.finished}
    assert {"completed", "client-left"} <= kinds, "the storm was none"
