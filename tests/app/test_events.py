"""The admin port's event stream: what it sends, to whom, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from router.app.house import House
from router.app.process import serve as serving_module
from router.app.process.serve import Sockets, serve
from router.app.process.stopping import Stop
from router.app.settings.model import Settings
from tests.rig.client import DEADLINE_S, Client, chat
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.tasks import Tasks

EVENTS = "/api/events"
ASK = b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Stream:
    """One who listens."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self, name: str = "") -> Any:
        """Read on to the next event of a name and return its data; None at the end of the stream."""
        seen = ""
        async with asyncio.timeout(DEADLINE_S):
            async for line in self._lines:
                if line.startswith("event: "):
                    seen = line.removeprefix("event: ")
                elif line.startswith("data: ") and name in ("", seen):
                    return json.loads(line.removeprefix("data: "))
        return None


@contextlib.asynccontextmanager
async def listening(router: Router) -> AsyncIterator[Stream]:
    admin = await router.admin()
    async with admin.stream("GET", EVENTS) as answer:
        assert answer.status_code == 200
        yield Stream(answer)


async def test_an_overview_comes_at_once_and_again(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    async with listening(router) as stream:
        headers = stream.answer.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")
        first = await stream.next("overview")
        shown = (await (await router.admin()).get("/api/overview")).json()
        passing = {"now_s", "uptime_s"}
        assert {name: first[name] for name in first if name not in passing} == {
            name: shown[name] for name in shown if name not in passing
        }
        await stage.ask(router, chat())
        second = await stream.next("overview")
        assert second["windows"]["5m"]["requests"] == 1
        assert second["now_s"] > first["now_s"]


async def test_decisions_come_as_requests_finish(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    async with listening(router) as stream:
        await stage.ask(router, chat("a long story, " * 200))
        decision = await stream.next("decision")
        listed = (await (await router.admin()).get("/api/decisions")).json()
        assert decision == listed[0]


async def test_of_too_many_decisions_the_rest_is_counted(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    async with listening(router) as stream:
        await stream.next("overview")
        client = await stage.client(router)
        client.send(b"".join(chat() for _ in range(150)))
        for _ in range(150):
            await client.answer()
        shown = skipped = 0
        while shown + skipped < 150:
            data = await stream.next()
            shown += "request_id" in data
            skipped += data.get("count", 0)
        assert shown + skipped == 150
        assert skipped > 0


async def test_all_who_listen_get_the_same(stage: Stage) -> None:
    """What is sent is made once: two overviews made one after the other would differ in their time."""
    router = await stage.router(await stage.replica())
    async with listening(router) as one, listening(router) as other:
        for stream in (one, other):
            await stream.next("overview")
        assert await one.next("overview") == await other.next("overview")


async def test_who_leaves_leaves_nothing_behind(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    admin = await router.admin()
    await admin.get("/api/overview")
    before = asyncio.all_tasks()
    feed = router.house.feed
    for _ in range(3):
        async with listening(router) as one, listening(router) as other:
            await one.next("overview")
            await other.next("overview")
            assert len(feed.listeners) == 2
        await router.until(lambda: not feed.listeners)
    await router.until(lambda: asyncio.all_tasks() <= before, "a task is left")
    await stage.ask(router, chat())
    assert not feed.pending()


async def test_one_that_takes_nothing_leaves_nothing_behind_either(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    admin = await router.admin()
    await admin.get("/api/overview")
    before, feed = asyncio.all_tasks(), router.house.feed
    client = await Client.open(admin.base_url.port or 0, receive_buffer_bytes=4096, read_ahead_bytes=4096)
    client.send(ASK)
    await router.until(lambda: len(feed.listeners) == 1)
    (listener,) = feed.listeners
    for _ in range(50):  # more than the kernel and the transport take in
        listener.put_overview(b"event: overview\ndata: " + b"x" * 200_000 + b"\n\n")
        await Client.turn()
    client.leave()
    await router.until(lambda: not feed.listeners)
    await router.until(lambda: asyncio.all_tasks() - {asyncio.current_task()} <= before, "a task is left")


async def test_the_stream_ends_when_the_port_wants_another_token(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), admin_token="a secret of the house")
    admin = await router.admin()
    async with admin.stream("GET", EVENTS, headers={"authorization": "Bearer a secret of the house"}) as answer:
        stream = Stream(answer)
        await stream.next("overview")
        router.house.settings = router.house.settings.model_copy(update={"admin_token": SecretStr("another secret")})
        assert await stream.next("never") is None


# The end


class Running:
    """`serve` on this loop, with the house that it built."""

    def __init__(self, settings: Settings) -> None:
        self._sockets = Sockets(*(socket.create_server(("127.0.0.1", 0)) for _ in range(2)))
        self.admin_port: int = self._sockets.admin.getsockname()[1]
        self.stop, self.over = Stop(), asyncio.Event()
        self._settings = settings
        self._built: asyncio.Future[House] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        await serve(self._settings, self._sockets, lambda: None, self.stop, self._control)
        self.over.set()

    async def _control(self, house: House) -> None:
        self._built.set_result(house)
        await asyncio.Event().wait()

    async def house(self) -> House:
        return await self._built


@pytest.fixture
async def running(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Running]:
    """A router as `warmroute serve` runs it, without what would end this process or spare its garbage collector."""
    for unwanted in ("give_up_soon", "spare_the_collector"):
        monkeypatch.setattr(serving_module, unwanted, lambda: None)
    replica = await stage.replica()
    settings = Settings(replica=(replica.url,), log_requests=False, drain_s=0, state_file=tmp_path / "state")
    running = Running(settings)
    async with Tasks() as tasks:
        tasks.spawn(running.serve())
        await running.house()
        yield running
        running.stop.ask()
        await tasks.ended()


async def test_streams_do_not_delay_the_end(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each last step may take an hour here, so what ends has waited for none of them to be cut."""
    monkeypatch.setattr(serving_module, "LAST_S", 3_600.0)
    async with contextlib.AsyncExitStack() as stack:
        url = f"http://127.0.0.1:{running.admin_port}"
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, trust_env=False, verify=False))
        streams = [Stream(await stack.enter_async_context(client.stream("GET", EVENTS))) for _ in range(3)]
        for stream in streams:
            await stream.next("overview")
        running.stop.ask()
        for stream in streams:
            assert await stream.next("never") is None, "it ends as it should, with its last chunk"


async def test_one_that_takes_nothing_does_not_hold_up_the_end(running: Running) -> None:
    house = await running.house()
    client = await Client.open(running.admin_port, receive_buffer_bytes=4096, read_ahead_bytes=4096)
    client.send(ASK)
    assert (await client.head()).status == 200
    (listener,) = house.feed.listeners
    for _ in range(50):
        listener.put_overview(b"event: overview\ndata: " + b"x" * 200_000 + b"\n\n")
        await Client.turn()
    running.stop.ask()
    async with asyncio.timeout(DEADLINE_S):
        await running.over.wait()
    client.leave()
