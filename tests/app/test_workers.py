"""`warmroute serve --workers N`: several processes on one port, replaced when they die, ended together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from router.app.process.worker import WholeLines
from router.app.process.workers import LONGEST_DELAY_S, restart_delay_s
from tests.redis_server import running_redis
from tests.rig.client import Client, chat, request
from tests.rig.served import START_S, Served, launch, refused, serving
from tests.rig.stage import Stage

LONG = chat(stream=True, max_tokens=60, ignore_eos=True)
ENDLESS = chat(stream=True, max_tokens=50_000, ignore_eos=True)


async def printed(*command: str) -> str:
    asked = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    return (await asked.communicate())[0].decode()


@pytest.fixture
def redis() -> Iterator[list[str]]:
    with running_redis() as url:
        yield ["--redis", url]


async def test_every_worker_answers_on_the_one_port(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica()
    async with serving(*redis, "--replica", replica.url, workers=3) as served:
        for admin_port in served.pids:
            before = await served.decided(admin_port)
            with served.only(admin_port):
                assert (await stage.ask(served, chat())).status == 200
                assert await served.decided(admin_port) == before + 1


async def test_one_worker_is_one_process(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica()
    process = await launch(*redis, "--replica", replica.url, workers=1)
    served = Served(process, 0)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            said = [(await process.stdout.readline()).decode() for _ in range(2)]
        assert [line.split()[1] for line in said] == ["clients", "admin"]
        assert await printed("pgrep", "-P", str(process.pid)) == ""
    finally:
        served.send(signal.SIGTERM)
        code, err = await served.ended()
    assert code == 0
    assert "worker" not in err


async def test_secrets_stand_on_no_workers_command_line(redis: list[str]) -> None:
    async with serving(*redis, "--redis-secret", "hunter2-hunter2", workers=2) as served:
        pids = ",".join(map(str, served.pids.values()))
        shown = await printed("ps", "-ww", "-o", "args=", "-p", pids)  # a command line is not cut
    assert shown.count("router.app.process.worker") == 2
    assert "hunter2" not in shown
    assert redis[1] not in shown


# Death


async def test_a_killed_worker_is_replaced_and_requests_go_on(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica()
    async with serving(*redis, "--replica", replica.url, workers=2) as served:
        first = next(iter(served.pids))
        killed = served.pids[first]
        os.kill(killed, signal.SIGKILL)
        for _ in range(20):
            assert (await stage.ask(served, chat())).status == 200
        said = await served.line("ended")
        assert f"admin port {first} ended (signal SIGKILL)" in said.string
        assert await served.started() == first
        assert served.pids[first] != killed
        with served.only(first):
            assert (await stage.ask(served, chat())).status == 200
            assert await served.decided(first) == 1


async def test_a_worker_told_to_stop_finishes_its_stream_and_is_replaced(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving(*redis, "--replica", replica.url, workers=2) as served:
        first = next(iter(served.pids))
        with served.only(first):
            client = await stage.client(served)
            client.send(LONG)
            answer = await client.head()
        os.kill(served.pids[first], signal.SIGTERM)
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        assert await served.started() == first


async def test_a_new_worker_that_cannot_start_is_tried_again(tmp_path: Path, redis: list[str]) -> None:
    file = tmp_path / "server.pem"
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))
    usable = file.read_text()
    async with serving(*redis, "--ssl-certfile", str(file), workers=2) as served:
        file.write_text("nonsense")
        os.kill(next(iter(served.pids.values())), signal.SIGKILL)
        for delay in ("0.5", "1"):
            await served.line(rf"ended \(TLS: .*\): a new one starts in {delay} s")
        file.write_text(usable)
        await served.started()


@pytest.mark.parametrize(("quick_deaths", "delay_s"), [(0, 0.0), (1, 0.0), (2, 0.5), (3, 1.0), (4, 2.0), (5, 4.0)])
def test_the_delay_grows_with_quick_deaths(quick_deaths: int, delay_s: float) -> None:
    assert restart_delay_s(quick_deaths) == delay_s


@pytest.mark.parametrize("quick_deaths", [9, 100, 100_000])
def test_the_delay_has_an_end(quick_deaths: int) -> None:
    assert restart_delay_s(quick_deaths) == LONGEST_DELAY_S


# The end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("whole_group", [False, True], ids=["parent", "group"])
async def test_a_signal_lets_a_running_stream_finish(
    stage: Stage, redis: list[str], number: signal.Signals, whole_group: bool
) -> None:
    """To the group it comes as Ctrl-C does; a wrapper may send the parent a signal of its own at the same time."""
    replica = await stage.replica(time_scale=1.0)
    async with serving(*redis, "--replica", replica.url, workers=2) as served:
        streams = []
        for admin_port in served.pids:
            with served.only(admin_port):
                client, idle = await stage.client(served), await stage.client(served)
                assert (await idle.ask(request("/livez"))).status == 200
                client.send(LONG)
                streams.append((client, idle, await client.head()))
        served.send(number, whole_group=whole_group)
        if whole_group:
            served.send(signal.SIGTERM if number is signal.SIGINT else signal.SIGINT)
        for client, idle, answer in streams:
            await idle.closed()
            await client.rest(answer)
            assert answer.events()[-1] == "[DONE]"
            assert len(answer.chunks) > 55
            await client.closed()
        code, err = await served.ended()
    assert code == 0
    assert "Traceback" not in err
    assert "a new one" not in err


async def test_a_ctrl_c_is_the_parents_affair(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving(*redis, "--replica", replica.url, workers=2) as served:
        client = await stage.client(served)
        client.send(LONG)
        answer = await client.head()
        for pid in served.pids.values():
            os.kill(pid, signal.SIGINT)
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        assert (await client.ask(chat())).status == 200


async def test_after_a_signal_nothing_new_is_accepted(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving(*redis, "--replica", replica.url, workers=2) as served:
        streams, idles = [], []
        for admin_port in served.pids:
            with served.only(admin_port):
                client, idle = await stage.client(served), await stage.client(served)
                await idle.ask(request("/livez"))
                client.send(LONG)
                streams.append((client, await client.head()))
                idles.append(idle)
        served.send(signal.SIGTERM)
        for idle in idles:
            await idle.closed()
        with pytest.raises(ConnectionRefusedError):
            await Client.open(served.port)
        for client, answer in streams:
            await client.rest(answer)
            assert answer.events()[-1] == "[DONE]"


async def test_a_second_signal_ends_it_at_once(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving(*redis, "--replica", replica.url, "--grace-s", "3600", workers=2) as served:
        client = await stage.client(served)
        client.send(ENDLESS)
        await client.chunk(await client.head())
        end = asyncio.ensure_future(served.ended())
        while not end.done():  # signals that come soon after the first are the first
            with contextlib.suppress(ProcessLookupError):
                served.send(signal.SIGTERM)
            await asyncio.wait([end], timeout=0.1)
        rest, _ = await client.remainder()
        assert b"[DONE]" not in rest
        assert (await end)[0] == 0


async def test_a_worker_that_does_not_end_is_killed_after_the_grace(redis: list[str]) -> None:
    async with serving(*redis, "--grace-s", "0", workers=2) as served:
        os.kill(next(iter(served.pids.values())), signal.SIGSTOP)
        served.send(signal.SIGTERM)
        code, _ = await served.ended()
    assert code == 0


async def test_workers_end_after_a_parent_that_was_killed(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving(*redis, "--replica", replica.url, workers=2) as served:
        client = await stage.client(served)
        client.send(LONG)
        answer = await client.head()
        served.send(signal.SIGKILL)
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        code, err = await served.ended()
        assert code == -signal.SIGKILL
        assert "Traceback" not in err
        with pytest.raises(ConnectionRefusedError):
            await Client.open(served.port)


async def test_a_parent_killed_while_workers_start_leaves_none(redis: list[str]) -> None:
    process = await launch(*redis, workers=2)
    served = Served(process, 2)
    async with asyncio.timeout(START_S):
        while not await printed("pgrep", "-P", str(process.pid)):
            assert process.returncode is None
    served.send(signal.SIGKILL)
    _, err = await served.ended()
    assert "Traceback" not in err


# A start that fails


async def test_a_taken_admin_port_is_one_line_and_exit_2(redis: list[str]) -> None:
    """The second worker's; the first one's is the one before it, which happens to be taken now and then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = await refused(*redis, "--admin-port", str(port - 1), workers=2)
    assert re.search(rf"127\.0\.0\.1:({port}|{port - 1}): .*in use", said)


async def test_workers_that_cannot_start_are_one_line_and_exit_2(tmp_path: Path, redis: list[str]) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    assert "TLS" in await refused(*redis, "--ssl-certfile", str(broken), workers=2)


async def test_workers_without_redis_are_refused() -> None:
    assert "2 workers need redis" in await refused(workers=2)


# The log


async def test_request_lines_of_all_workers_come_whole(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica()
    async with serving(*redis, "--replica", replica.url, workers=2) as served:
        idents = [f"{number}-" + "x" * 100 for number in range(200)]
        async with asyncio.timeout(START_S):
            await asyncio.gather(*(stage.ask(served, chat(headers=[("x-request-id", ident)])) for ident in idents))
        served.send(signal.SIGTERM)
        _, err = await served.ended()
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert sorted(line["request_id"] for line in lines if line["event"] == "request_finished") == sorted(idents)


def written(data: bytes) -> list[bytes]:
    """Write to a socket that keeps writes apart; return them."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs, ours:
        assert WholeLines(theirs.fileno()).write(data) == len(data)
        ours.setblocking(False)
        parts = []
        with contextlib.suppress(BlockingIOError):
            while True:
                parts.append(ours.recv(1 << 20))
        return parts


def test_a_few_lines_are_one_write() -> None:
    assert written(b"one\ntwo\n") == [b"one\ntwo\n"]


def test_many_lines_are_written_in_parts_that_a_pipe_keeps_together() -> None:
    data = b"".join(b"%d %b\n" % (number, b"x" * (number * 37 % 400)) for number in range(100))
    parts = written(data)
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") and len(part) <= 512 * 8 for part in parts)
    assert len(parts) < 10


@pytest.mark.parametrize("size", [4095, 4096, 4097, 20_000])
def test_a_long_line_is_written_alone(size: int) -> None:
    long = b"x" * (size - 1) + b"\n"
    parts = written(b"before\n" + long + b"after\n")
    assert b"".join(parts) == b"before\n" + long + b"after\n"
    assert all(part.endswith(b"\n") for part in parts)
    assert all(len(part) <= 4096 or part == long for part in parts)
