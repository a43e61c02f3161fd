"""The router may open no more files: who is too many is told so, streams go on, no replica is blamed, and it passes."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from tests.rig.client import Answer, Client, chat, request
from tests.rig.served import Served, serving
from tests.rig.stage import Stage

FILES = 64
"""Of which half are for clients: 16, and as many connections to replicas."""

CLIENTS = 16

STREAM = chat("a stream", stream=True, max_tokens=60, ignore_eos=True)


def limited(files: int) -> tuple[str, ...]:
    return ("prlimit", f"--nofile={files}:{files}")


def close_the_tap(served: Served, files: int = 1) -> None:
    """Let the process open no file of this number or above."""
    hard = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (files, hard))


def open_the_tap(served: Served) -> None:
    hard = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (hard, hard))


async def begin(client: Client) -> Answer:
    answer = await client.ask_head(STREAM)
    assert answer.status == 200
    await client.chunk(answer)
    return answer


async def end(client: Client, answer: Answer) -> None:
    await client.rest(answer)
    assert answer.events()[-1] == "[DONE]"


async def test_who_is_too_many_is_told_so_and_room_is_taken_again(stage: Stage) -> None:
    slow = await stage.replica(time_scale=1.0)
    async with serving("--replica", slow.url, "--no-log-requests", through=limited(FILES)) as served:
        clients = [await stage.client(served) for _ in range(CLIENTS)]
        streams = [await begin(client) for client in clients]
        for _ in range(3 * FILES):
            answer = await (late := await stage.client(served)).answer()
            assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
            assert answer.header("retry-after") == "1"
            late.leave()
        for client, stream in zip(clients, streams, strict=True):
            await end(client, stream)
            client.leave()
        assert (await stage.ask(served, chat())).status == 200
        assert await served.metric("warmroute_shortages_total") == 0
        served.send(signal.SIGTERM)
        code, log = await served.ended()
    assert code == 0
    (said,) = [line for line in log.splitlines() if "files may be open" in line]
    assert said.startswith("64 files may be open, which is enough for 16 client connections")
    assert "is out" not in log
    assert len(log.splitlines()) < 10, "nothing is said for each connection"


async def test_a_replica_that_could_not_be_asked_is_not_blamed(stage: Stage) -> None:
    """The whole system may run out (ENFILE), which no bound of ours keeps away."""
    one, other = await stage.replicas(2, time_scale=1.0)
    probed = ("--health-interval-s", "0.1", "--scrape-interval-s", "0.1")
    replicas = ("--replica", one.url, "--replica", other.url)
    async with serving(*replicas, *probed, "--no-log-requests") as served:
        streaming, idle, later = [await stage.client(served) for _ in range(3)]
        streams = await begin(streaming)
        close_the_tap(served)
        answer = await idle.ask(chat("somebody else's"))
        assert (answer.status, answer.error["code"]) == (503, "out_of_files")
        assert answer.header("retry-after") == "1"
        await served.line("connections to replicas can't be made: Too many open files; no replica is blamed")
        await end(streaming, streams)
        open_the_tap(served)
        assert (await later.ask(chat("back again"))).status == 200
        assert await served.metric("warmroute_shortages_total") >= 1
        shown = await served.fleet()
        assert [replica["state"] for replica in shown["replicas"]] == ["ready", "ready"]
        served.send(signal.SIGTERM)
        code, log = await served.ended()
    assert code == 0
    assert log.count("can't be made") == 1, "probes and requests that fail for the same reason are one line"
    assert "is out" not in log


async def test_a_router_that_can_take_no_connection_does_not_spin(stage: Stage) -> None:
    """The kernel's queue of connections would stay full of what can't be taken, and wake the loop for ever."""
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--no-log-requests") as served:
        streaming = await stage.client(served)
        stream = await begin(streaming)
        close_the_tap(served, files=FILES)
        taken = [await stage.client(served) for _ in range(FILES)]
        before = processor_ticks(served)
        closed = [await closed_unheard(await stage.client(served)) for _ in range(20)]
        assert closed.count(True) > 15, "but for those that take the place of a probe that ends"
        await end(streaming, stream)
        assert processor_ticks(served) - before < 0.5 * os.sysconf("SC_CLK_TCK"), "twenty connections and some chunks"
        for client in taken:
            client.leave()
        open_the_tap(served)
        assert (await stage.ask(served, chat())).status == 200


async def closed_unheard(client: Client) -> bool:
    client.send(request("/livez", headers=[("connection", "close")]))
    return (await client.remainder())[0] == b""


def processor_ticks(served: Served) -> int:
    """Time on a processor, which a loaded machine does not lengthen."""
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
