"""`warmroute serve --workers N`: several processes on one port, replaced when they die, ended together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from router.app.worker import WholeLines
from router.app.workers import LONGEST_DELAY_S, restart_delay_s
from tests.redis_server import running_redis
from tests.rig.client import Client, chat, request
from tests.rig.stage import Stage

START_S = 40.0
"""Several interpreters with all imports, on two cores, other tests beside this one."""

LONG = chat(stream=True, max_tokens=60, ignore_eos=True)
ENDLESS = chat(stream=True, max_tokens=50_000, ignore_eos=True)


class Served:
    """A running `warmroute serve` with workers, as its two outputs tell of it."""

    def __init__(self, process: asyncio.subprocess.Process, workers: int) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.errors: list[str] = []
        self._workers = workers
        self._out, self._err = process.stdout, process.stderr
        self.port = 0
        self.pids: dict[int, int] = {}
        """Admin port -> process that listens there."""

    async def ready(self) -> None:
        async with asyncio.timeout(START_S):
            said = [(await self._out.readline()).decode() for _ in range(1 + self._workers)]
        ports = []
        for line, pattern in zip(said, ["clients  https?", *["admin    http"] * self._workers], strict=True):
            found = re.fullmatch(rf"warmroute: {pattern}://127\.0\.0\.1:(\d+)/\S+\n", line)
            assert found, said
            ports.append(int(found[1]))
        self.port, *admin_ports = ports
        for _ in admin_ports:
            await self.started()
        assert sorted(self.pids) == sorted(admin_ports)
        assert len(set(self.pids.values())) == self._workers

    async def line(self, pattern: str) -> re.Match[str]:
        """Read its log up to a line that has this."""
        async with asyncio.timeout(START_S):
            while line := (await self._err.readline()).decode():
                self.errors.append(line)
                if found := re.search(pattern, line):
                    return found
        raise AssertionError(f"no line has {pattern!r}: {self.errors}")

    async def started(self) -> int:
        """Wait until a worker says that it has started; return its admin port."""
        found = await self.line(r"worker with admin port (\d+) is process (\d+)")
        self.pids[int(found[1])] = int(found[2])
        return int(found[1])

    async def ended(self) -> tuple[int, str]:
        """Wait for the end of all processes, for all have the outputs; return the parent's exit code and the log."""
        async with asyncio.timeout(START_S):
            _, rest = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, "".join(self.errors) + rest.decode()

    def send(self, number: signal.Signals, *, whole_group: bool = False) -> None:
        (os.killpg if whole_group else os.kill)(self.process.pid, number)

    @contextlib.contextmanager
    def only(self, admin_port: int) -> Iterator[None]:
        """Stop all workers but one, which then must answer."""
        others = [pid for port, pid in self.pids.items() if port != admin_port]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)

    async def decided(self, admin_port: int) -> int:
        """Return how many requests this worker has decided."""
        async with httpx.AsyncClient(trust_env=False, verify=False) as admin:
            return len((await admin.get(f"http://127.0.0.1:{admin_port}/api/decisions")).json())


async def launch(*arguments: str, workers: int = 2) -> asyncio.subprocess.Process:
    """Start it in a process group of its own, as a shell does."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", "serve", "--port", "0", "--admin-port", "0", "--workers", str(workers),
        *arguments,
        env=clean, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def serving(*arguments: str, workers: int = 2) -> AsyncIterator[Served]:
    served = Served(await launch(*arguments, workers=workers), workers)
    try:
        await served.ready()
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            served.send(signal.SIGKILL, whole_group=True)
        await served.ended()


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
    async with serving(*redis, "--redis-secret", "hunter2-hunter2") as served:
        pids = ",".join(map(str, served.pids.values()))
        shown = await printed("ps", "-o", "args=", "-p", pids)
    assert shown.count("router.app.worker") == 2
    assert "hunter2" not in shown
    assert redis[1] not in shown


# Death


async def test_a_killed_worker_is_replaced_and_requests_go_on(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica()
    async with serving(*redis, "--replica", replica.url) as served:
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
    async with serving(*redis, "--replica", replica.url) as served:
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
    async with serving(*redis, "--ssl-certfile", str(file)) as served:
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
    async with serving(*redis, "--replica", replica.url) as served:
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
    async with serving(*redis, "--replica", replica.url) as served:
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
    async with serving(*redis, "--replica", replica.url) as served:
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
    async with serving(*redis, "--replica", replica.url, "--grace-s", "3600") as served:
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
    async with serving(*redis, "--grace-s", "0") as served:
        os.kill(next(iter(served.pids.values())), signal.SIGSTOP)
        served.send(signal.SIGTERM)
        code, _ = await served.ended()
    assert code == 0


async def test_workers_end_after_a_parent_that_was_killed(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving(*redis, "--replica", replica.url) as served:
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
    process = await launch(*redis)
    served = Served(process, 2)
    async with asyncio.timeout(START_S):
        while not await printed("pgrep", "-P", str(process.pid)):
            assert process.returncode is None
    served.send(signal.SIGKILL)
    _, err = await served.ended()
    assert "Traceback" not in err


# A start that fails


async def refused(*arguments: str) -> str:
    """A start that must fail: exit code 2, nothing on stdout, one line on stderr, which is returned."""
    process = await launch(*arguments)
    async with asyncio.timeout(START_S):
        out, err = await process.communicate()
    assert (process.returncode, out) == (2, b""), err
    assert re.fullmatch(r"warmroute: [^\n]+\n", err.decode()), err
    return err.decode()


async def test_a_taken_admin_port_is_one_line_and_exit_2(redis: list[str]) -> None:
    """The second worker's; the first one's is the one before it, which happens to be taken now and then."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = await refused(*redis, "--admin-port", str(port - 1))
    assert re.search(rf"127\.0\.0\.1:({port}|{port - 1}): .*in use", said)


async def test_workers_that_cannot_start_are_one_line_and_exit_2(tmp_path: Path, redis: list[str]) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    assert "TLS" in await refused(*redis, "--ssl-certfile", str(broken))


async def test_workers_without_redis_are_refused() -> None:
    assert "2 workers need redis" in await refused()


# The log


async def test_request_lines_of_all_workers_come_whole(stage: Stage, redis: list[str]) -> None:
    replica = await stage.replica()
    async with serving(*redis, "--replica", replica.url) as served:
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
