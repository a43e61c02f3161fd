"""Packets are lost, on the clients' side and on the replicas': streams arrive whole, and nobody is ejected for it.

TCP sends again what was lost, so users see pauses and bursts of tokens and no more. A router could make more of it:
take a pause for a silence, a late probe for a dead engine, a slow answer for a bad one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from router.proxy.plane import Limits
from router.sim.replica import SimReplica
from tests.rig.client import DEADLINE_S, Answer, Client, chat, request
from tests.rig.faulty_link import FaultyLink
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer

LOSS_RATIO = 0.03
"""Each way: more than people put up with for long. A request that is lost four times in a row goes elsewhere after the
connect time-out, which of these requests one in 80,000 does."""

STREAMS, EVENTS = 24, 60


async def numbered(peer: Peer) -> None:
    """Streams of numbered events, each in a segment of its own."""
    while True:
        received = await peer.request()
        if received.method == "GET":  # a probe, or a reading
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            continue
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(EVENTS):
            event = b"data: %d\n\n" % number
            peer.send(b"%x\r\n%b\r\n" % (len(event), event))
            await peer.writer.drain()
            await asyncio.sleep(0)
        peer.send(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


@contextlib.asynccontextmanager
async def lossy(stage: Stage, **settings: Any) -> AsyncIterator[tuple[FaultyLink, Router]]:
    """A router with two replicas, each behind a link that loses packets; and such a link to the router."""
    async with contextlib.AsyncExitStack() as stack:
        replicas = []
        for _ in range(2):
            upstream = await stage.upstream(numbered)
            replicas.append(await stack.enter_async_context(FaultyLink(upstream.port, LOSS_RATIO)))
        router = await stage.router(*replicas, **settings)
        yield await stack.enter_async_context(FaultyLink(router.port, LOSS_RATIO)), router


async def asked(stage: Stage, link: FaultyLink, data: bytes) -> Answer:
    client: Client = await stage.client(link)
    return await client.ask(data)


def resent_segments() -> int:
    """All that this machine has sent again so far (`TcpRetransSegs`)."""
    lines = Path("/proc/net/snmp").read_text().splitlines()
    names, values = [line.split() for line in lines if line.startswith("Tcp:")]
    return int(values[names.index("RetransSegs")])


async def test_streams_arrive_whole_and_nobody_is_ejected(stage: Stage) -> None:
    before = resent_segments()
    async with lossy(stage) as (link, router):
        answers = await asyncio.gather(
            *(asked(stage, link, chat(f"{number}", stream=True)) for number in range(STREAMS))
        )
        for answer in answers:
            assert answer.events() == [*range(EVENTS), "[DONE]"]
        assert {record.outcome for record in router.records.finished} == {"completed"}
        assert router.records.failed == []
        assert all(replica.health.up for replica in router.house.fleet)
        assert {answer.replica for answer in answers} == set(router.house.endpoints), "both were asked"
    assert resent_segments() > before, "nothing was lost"


async def test_long_prompts_arrive_whole(stage: Stage) -> None:
    """And the last part of each, after which nothing follows that would tell of its loss."""

    async def echo(peer: Peer) -> None:
        while True:
            received = await peer.request()
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(received.body) + received.body)

    upstream = await stage.upstream(echo)
    async with FaultyLink(upstream.port, LOSS_RATIO) as far:
        router = await stage.router(far)
        async with FaultyLink(router.port, LOSS_RATIO) as near:
            bodies = [bytes([number]) * 500_000 for number in range(4)]
            asking = [asked(stage, near, request("/v1/audio/transcriptions", body)) for body in bodies]
            answers = await asyncio.gather(*asking)
    assert [answer.body for answer in answers] == bodies
    assert router.records.failed == []


def asked_often(replica: SimReplica, count: int) -> bool:
    return len(replica.requests) >= count


async def test_probes_that_lose_packets_eject_nobody(stage: Stage) -> None:
    """A probe has 2 s, in which a lost segment is sent again several times; and one that fails ejects nobody."""
    replicas = await stage.replicas(2)
    async with contextlib.AsyncExitStack() as stack:
        links = [await stack.enter_async_context(FaultyLink(replica.port, LOSS_RATIO)) for replica in replicas]
        router = await stage.router(*links, watched=True, health_interval_s=0.1, scrape_interval_s=0.1)
        for count in (15, 30):
            assert (await stage.ask(router, chat())).status == 200
            for replica in replicas:
                await replica.wait_for(partial(asked_often, replica, count), DEADLINE_S)
            assert all(replica.health.up for replica in router.house.fleet)
        assert router.records.failed == []


def test_a_vanished_host_is_told_from_a_lossy_one_by_many_packets_not_by_one() -> None:
    """Within the limit a segment is sent again this often at the least, where answers take 200 ms."""
    limit_s, pause_s, times = Limits().vanish_timeout_s, 0.4, 0
    while limit_s > 0:
        limit_s, pause_s, times = limit_s - pause_s, 2 * pause_s, times + 1
    assert times >= 6
