"""Routers replaced one by one behind a load balancer, under load: no request fails, no stream breaks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator

from tests.rig.client import Answer, Client, chat, request
from tests.rig.served import Served, launch
from tests.rig.stage import Stage

CLIENTS = 8

DRAIN_S = "1"
"""Many times what a client here takes to notice, on its next connection at the latest."""


class Balancer:
    """What stands in front of routers: new connections go to those that say they are ready, in turn."""

    def __init__(self, stage: Stage) -> None:
        self.routers: list[Served] = []
        self._stage = stage
        self._turns = itertools.count()

    async def connect(self) -> Client:
        turn = next(self._turns) % len(self.routers)
        for router in [*self.routers[turn:], *self.routers[:turn]]:
            with contextlib.suppress(ConnectionRefusedError):
                client = await self._stage.client(router)
                if (await client.ask(request("/readyz"))).status == 200:
                    return client
                client.leave()
        raise AssertionError("no router is ready")


class Load:
    """Clients that keep their connections for as long as they may, and ask one thing after another."""

    def __init__(self, balancer: Balancer) -> None:
        self.answers: list[Answer] = []
        self.connections = 0
        self._balancer = balancer
        self._over = False
        self._came = asyncio.Event()

    async def client(self) -> None:
        connection: Client | None = None
        for stream in itertools.cycle((True, False)):
            if self._over:
                break
            if connection is None:
                connection = await self._balancer.connect()
                self.connections += 1
            answer = await connection.ask(chat(stream=stream))
            self.answers.append(answer)
            self._came.set()
            if answer.header("connection") == "close":
                connection.leave()
                connection = None
        if connection is not None:
            connection.leave()

    async def more(self, count: int) -> None:
        """Wait for so many further answers."""
        wanted = len(self.answers) + count
        async with asyncio.timeout(30):
            while len(self.answers) < wanted:
                self._came.clear()
                await self._came.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self.client())
            try:
                yield
            finally:
                self._over = True


async def test_every_request_is_answered(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    given = [part for replica in replicas for part in ("--replica", replica.url)]
    balancer = Balancer(stage)
    load = Load(balancer)
    async with contextlib.AsyncExitStack() as stack:

        async def start() -> None:
            router = Served(await launch(*given, "--drain-s", DRAIN_S, "--no-log-requests"))
            stack.push_async_callback(end, router)
            await router.ready()
            balancer.routers.append(router)

        await start()
        await start()
        async with load.running():
            await load.more(50)
            for old in list(balancer.routers):
                old.send(signal.SIGTERM)
                await start()
                code, err = await old.ended()
                balancer.routers.remove(old)
                assert code == 0
                assert "stopped: every request was answered" in err
                await load.more(50)
    assert {answer.status for answer in load.answers} == {200}
    streams = [answer for answer in load.answers if answer.header("transfer-encoding") == "chunked"]
    assert len(streams) > 50
    assert all(answer.events()[-1] == "[DONE]" for answer in streams)
    assert load.connections >= 2 * CLIENTS, "each went elsewhere when it was told to"


async def end(router: Served) -> None:
    with contextlib.suppress(ProcessLookupError):
        router.send(signal.SIGKILL)
    await router.ended()
