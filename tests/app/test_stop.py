"""How `warmroute serve` ends: clients are sent elsewhere, what runs may end, what does not end is cut, and it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redis_server import RedisServer
from tests.rig.client import Answer, Client, chat, request
from tests.rig.served import Served, serving
from tests.rig.stage import Stage

FOR_EVER = "3600"
"""Seconds that no test waits for: what ends before has not waited for its time."""

LONG = chat(stream=True, max_tokens=60, ignore_eos=True)
ENDLESS = chat(stream=True, max_tokens=50_000, ignore_eos=True)


async def begin(client: Client, what: bytes = ENDLESS) -> Answer:
    """Have a stream begun."""
    client.send(what)
    answer = await client.head()
    await client.chunk(answer)
    return answer


async def hurry(served: Served) -> int:
    """Signal until it ends: signals that come soon after the first are the first."""
    end = asyncio.ensure_future(served.ended())
    while not end.done():
        with contextlib.suppress(ProcessLookupError):
            served.send(signal.SIGTERM)
        await asyncio.wait([end], timeout=0.1)
    return (await end)[0]


def last_event(rest: bytes) -> bytes:
    return rest.rpartition(b"data: ")[2]


# While it drains


async def test_it_is_not_ready_from_the_first_moment_on(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--drain-s", FOR_EVER) as served:
        assert (await stage.ask(served, request("/livez"))).status == 200
        assert await served.metric("warmroute_stopping") == 0
        served.send(signal.SIGTERM)
        await served.line("stopping: 0 requests are under way")
        for path in ("/readyz", "/health"):
            answer = await stage.ask(served, request(path))
            assert (answer.status, answer.json()["status"]) == (503, "stopping")
        assert (await stage.ask(served, request("/livez"))).status == 200
        assert await served.metric("warmroute_stopping") == 1


async def test_new_connections_are_served_once_each(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--drain-s", FOR_EVER) as served:
        kept = [await stage.client(served) for _ in range(3)]
        for client, what in zip(kept, (chat(), chat(), request("/livez")), strict=True):
            assert (await client.ask(what)).header("connection") is None
        served.send(signal.SIGTERM)
        await served.line("stopping")
        fresh = [await stage.client(served) for _ in range(3)]
        requests = (chat(), chat(stream=True), request("/v1/models"))
        for client, what in zip([*kept, *fresh], (*requests, *requests), strict=True):
            answer = await client.ask(what)
            assert (answer.status, answer.header("connection")) == (200, "close")
            await client.closed()


async def test_an_answer_that_has_not_begun_says_that_it_is_the_last(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--drain-s", FOR_EVER) as served:
        client = await stage.client(served)
        client.send(chat(max_tokens=60, ignore_eos=True))
        await replica.wait_for(lambda: replica.engine.running == 1, 5.0)
        served.send(signal.SIGTERM)
        answer = await client.answer()
        assert (answer.status, answer.header("connection")) == (200, "close")
        await client.closed()


async def test_ports_close_and_idle_connections_end_after_the_drain(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--drain-s", "0.5") as served:
        client, idle, fresh, halfway = [await stage.client(served) for _ in range(4)]
        await idle.ask(chat())
        body = chat(stream=True)
        halfway.send(body[:-10])
        answer = await begin(client, LONG)
        served.send(signal.SIGTERM)
        await idle.closed()
        with pytest.raises(ConnectionRefusedError):
            await Client.open(served.port)
        assert await served.metric("warmroute_stopping") == 1, "the admin port stays"
        halfway.send(body[-10:])
        for late in (await fresh.ask(chat()), await halfway.answer()):
            assert (late.status, late.header("connection")) == (200, "close")
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        code, err = await served.ended()
    assert code == 0
    assert "stopped: every request was answered" in err
    assert "Traceback" not in err


async def test_a_connection_that_never_asks_does_not_hold_up_the_end(stage: Stage) -> None:
    async with serving("--grace-s", FOR_EVER) as served:
        silent, halfway = await stage.client(served), await stage.client(served)
        halfway.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        served.send(signal.SIGTERM)
        await silent.closed()
        await halfway.closed()
        assert (await served.ended())[0] == 0


async def test_two_signals_at_once_are_one_wish(stage: Stage) -> None:
    """A wrapper passes Ctrl-C on to a process that its terminal has told already."""
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url) as served:
        client = await stage.client(served)
        answer = await begin(client, LONG)
        served.send(signal.SIGINT)
        served.send(signal.SIGTERM)
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        assert (await served.ended())[0] == 0


# The cut


async def test_a_stream_that_outlasts_the_grace_is_told_and_cut(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--grace-s", "0.5") as served:
        client = await stage.client(served)
        await begin(client)
        served.send(signal.SIGTERM)
        rest, how = await client.remainder()
        assert b'"code":"router_stopping"' in last_event(rest)
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n"), "the end would look complete"
        assert how == "closed"
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)
        code, err = await served.ended()
    assert code == 0
    assert "stopped: 1 requests were cut" in err
    assert '"error":"router_stopping"' in err, "its line is in the log"


async def test_a_request_without_an_answer_yet_gets_a_503(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--grace-s", "0.5") as served:
        client = await stage.client(served)
        client.send(chat(max_tokens=50_000, ignore_eos=True))
        await replica.wait_for(lambda: replica.engine.running == 1, 5.0)
        served.send(signal.SIGTERM)
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (503, "router_stopping")
        assert answer.header("connection") == "close"
        assert int(answer.header("retry-after") or 0) > 0
        await client.closed()
        assert (await served.ended())[0] == 0


async def test_a_client_that_takes_nothing_does_not_hold_up_the_end(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--grace-s", "0") as served:
        client = await stage.client(served, receive_buffer_bytes=4096, read_ahead_bytes=4096)
        client.send(ENDLESS)
        await client.head()
        served.send(signal.SIGTERM)
        assert (await served.ended())[0] == 0


async def test_a_second_signal_cuts_at_once_and_keeps_the_state(stage: Stage, tmp_path: Path) -> None:
    replica = await stage.replica(time_scale=1.0)
    state = tmp_path / "state"
    times = ["--drain-s", FOR_EVER, "--grace-s", FOR_EVER, "--state-file", str(state)]
    async with serving("--replica", replica.url, *times) as served:
        client = await stage.client(served)
        await begin(client)
        before = state.stat().st_ino if state.exists() else None  # the first one may be being written
        code = await hurry(served)
        rest, _ = await client.remainder()
    assert code == 0
    assert b'"code":"router_stopping"' in last_event(rest)
    assert state.stat().st_ino != before, "the file is replaced whole when it is written"


# While it starts, and what may hang


@contextlib.contextmanager
def mute_server() -> Iterator[int]:
    """A port that accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_while_redis_is_waited_for(number: signal.Signals) -> None:
    with mute_server() as port:
        times = ["--drain-s", FOR_EVER, "--grace-s", FOR_EVER]
        async with serving("--redis", f"redis://127.0.0.1:{port}", *times) as served:
            served.send(number)
            code, err = await served.ended()
    assert code == 0
    assert "Traceback" not in err


async def test_a_redis_that_hangs_does_not_hold_up_the_end(stage: Stage) -> None:
    replica = await stage.replica()
    with RedisServer() as redis:
        async with serving("--redis", redis.url, "--replica", replica.url) as served:
            assert (await stage.ask(served, chat())).status == 200
            redis.stop()
            served.send(signal.SIGTERM)
            code, err = await served.ended()
            redis.go_on()
    assert code == 0
    assert "Traceback" not in err


def test_what_hangs_for_good_is_left_behind() -> None:
    code = "import threading, router.app.process.stopping as s; s.give_up_soon(); threading.Event().wait()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 1
    assert "what still hangs is left behind" in ended.stderr


# Workers


@pytest.fixture
def redis() -> Iterator[list[str]]:
    with RedisServer() as server:
        yield ["--redis", server.url]


async def test_all_workers_drain(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica()
    async with serving(*redis, "--replica", replica.url, "--drain-s", FOR_EVER, workers=2) as served:
        for admin_port in served.pids:
            assert await served.metric("warmroute_stopping", admin_port) == 0
        served.send(signal.SIGTERM)
        for _ in served.pids:
            await served.line("stopping")
        for admin_port in served.pids:
            assert await served.metric("warmroute_stopping", admin_port) == 1
        answer = await stage.ask(served, request("/readyz"))
        assert (answer.status, answer.json()["status"]) == (503, "stopping")
        answer = await stage.ask(served, chat())
        assert (answer.status, answer.header("connection")) == (200, "close")


async def test_workers_that_hear_of_both_signals_at_once_tell_their_streams(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    times = ["--drain-s", FOR_EVER, "--grace-s", FOR_EVER]
    async with serving(*redis, "--replica", replica.url, *times, workers=2) as served:
        client = await stage.client(served)
        await begin(client)
        end = asyncio.ensure_future(served.ended())
        with served.only(0):
            for _ in range(10):  # as `hurry` does, for a second: the parent has taken a later one for a second wish
                served.send(signal.SIGTERM)
                await asyncio.wait([end], timeout=0.1)
        rest, _ = await client.remainder()
        code, _ = await end
    assert code == 0
    assert b'"code":"router_stopping"' in last_event(rest)


async def test_a_second_signal_has_workers_tell_their_streams(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    times = ["--drain-s", FOR_EVER, "--grace-s", FOR_EVER]
    async with serving(*redis, "--replica", replica.url, *times, workers=2) as served:
        clients = []
        for admin_port in served.pids:
            with served.only(admin_port):
                clients.append(await stage.client(served))
                await begin(clients[-1])
        code = await hurry(served)
        for client in clients:
            rest, _ = await client.remainder()
            assert b'"code":"router_stopping"' in last_event(rest)
    assert code == 0
