"""A replica's connection is reset (RST), at each phase of a request: a crash, a kill -9, a firewall in between.

Before the first byte of the body the client sees nothing of it: the request goes elsewhere. Later it sees an error
event and a cut connection, never a clean end. Between two requests nobody is to blame: the connection is made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from tests.faults.test_dies_mid_stream import events_until_cut
from tests.rig.client import chat, chunked, request
from tests.rig.forms import FORMS
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, ScriptedUpstream, answering

BODY = b"x" * (4 << 20)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SIZED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n"
EVENT = chunked(b"data: 1\n\n", last=b"")

Before = Callable[[Peer], Awaitable[None]]


async def says(peer: Peer, data: bytes) -> None:
    """Take the request, say this, and see to it that it has gone before the reset, which would overtake it."""
    await peer.request()
    await sent(peer, data)


async def sent(peer: Peer, data: bytes) -> None:
    peer.writer.transport.set_write_buffer_limits(high=0)
    peer.send(data)
    await peer.writer.drain()


async def on_arrival(peer: Peer) -> None:
    """At once: the request is on its way, or not even that."""


async def within_the_body(peer: Peer) -> None:
    await peer.reader.readexactly(100_000)


async def behind_the_request(peer: Peer) -> None:
    await peer.request()


EARLY: dict[str, Before] = {
    "on arrival": on_arrival,
    "within the request's body": within_the_body,
    "behind the request": behind_the_request,
    "within the head": lambda peer: says(peer, STREAM_HEAD[:40]),
    "behind a stream's head": lambda peer: says(peer, STREAM_HEAD),
    "behind a sized head": lambda peer: says(peer, SIZED_HEAD),
    "behind an interim head": lambda peer: says(peer, b"HTTP/1.1 103 Early\r\nlink: </x>\r\n\r\n"),
    "in front of the head's last line": lambda peer: says(peer, STREAM_HEAD[:-2]),
}
"""Phases in which nothing of an answer has come: what happens up to the reset."""


def resetting(before: Before) -> Callable[[Peer], Awaitable[None]]:
    async def script(peer: Peer) -> None:
        await before(peer)
        peer.reset()

    return script


@pytest.mark.parametrize("before", EARLY.values(), ids=EARLY)
async def test_before_the_first_byte_the_request_goes_elsewhere_whole(stage: Stage, before: Before) -> None:
    bad, good = await stage.upstream(resetting(before)), await stage.upstream(answering(OK))
    router = await stage.router(bad, good)
    answer = await stage.ask(router, request("/v1/audio/transcriptions", BODY))
    assert (answer.status, answer.body, answer.reason) == (200, b"ok", "failover")
    assert good.requests[0].body == BODY
    assert router.records.failed == [(router.id_of(bad), "reset")]
    assert not router.books(bad).health.up
    assert router.books(good).health.up
    assert router.in_flight == {}
    record = router.records.finished[-1]
    assert (record.attempts, record.outcome, record.error) == (2, "completed", None)


@pytest.mark.parametrize("before", EARLY.values(), ids=EARLY)
async def test_before_the_first_byte_and_nobody_else_is_there(stage: Stage, before: Before) -> None:
    router = await stage.router(await stage.upstream(resetting(before)))
    answer = await stage.ask(router, request("/v1/audio/transcriptions", BODY))
    assert (answer.status, answer.error["code"]) == (503, "upstream_failed")
    assert router.in_flight == {}


@dataclass(frozen=True)
class Late:
    """What has come of an answer when the reset does, and what of it must have been passed on."""

    sent: bytes
    told: bool = True
    """Whether an error event can follow: not within a chunk, and not within an event."""


LATE = {
    "between chunks": Late(STREAM_HEAD + EVENT),
    "within a chunk's size": Late(STREAM_HEAD + EVENT + b"1", told=False),
    "within a chunk": Late(STREAM_HEAD + EVENT + b"20\r\ndata: half of", told=False),
    "behind a chunk's data": Late(STREAM_HEAD + EVENT + b"9\r\ndata: 2\n\n", told=False),
    "within the last chunk": Late(STREAM_HEAD + EVENT + b"0\r\n", told=False),
    "within an event": Late(STREAM_HEAD + EVENT + chunked(b"data: ha", last=b""), told=False),
    "until close": Late(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n"),
}


class Held:
    """An upstream that says something, and is reset when the test has read it."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self.go = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        await peer.request()
        peer.send(self._sent)
        await self.go.wait()
        peer.reset()


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
async def test_after_the_first_byte_the_client_never_sees_a_clean_end(stage: Stage, late: Late) -> None:
    held = Held(late.sent)
    bad, good = await stage.upstream(held), await stage.upstream(answering(OK))
    router = await stage.router(bad, good)
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await client.head()
    await client.chunk(answer)
    held.go.set()
    chunks = await events_until_cut(client, answer)
    assert chunks[0] == b"data: 1\n\n"
    assert b"[DONE]" not in answer.body
    if late.told:
        assert FORMS["chat"].error_of(chunks[1])["code"] == "upstream_died"
    else:
        assert b"error" not in answer.body
    assert not good.requests, "nothing is made twice"
    await router.idle()
    record = router.records.finished[-1]
    assert (record.outcome, record.error, record.attempts) == ("died", "upstream_died", 1)
    assert not router.books(bad).health.up
    assert router.in_flight == {}


async def test_within_an_answer_in_one_piece_it_stays_cut(stage: Stage) -> None:
    held = Held(SIZED_HEAD + b'{"half":')
    router = await stage.router(await stage.upstream(held))
    client = await stage.client(router)
    client.send(chat())
    await client.head()
    assert await client.reader.readexactly(8) == b'{"half":'
    held.go.set()
    rest, _ = await client.remainder()
    assert rest == b""
    await router.idle()
    assert router.records.finished[-1].outcome == "died"


async def served_once(stage: Stage, again: Callable[[Peer], Awaitable[None]]) -> tuple[ScriptedUpstream, Router]:
    """An upstream whose first connection answers one request and then does this."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await sent(peer, OK)
        if peer.serial == 1:
            await again(peer)
            peer.reset()
        else:
            await peer.request()
            peer.send(OK)

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    assert (await stage.ask(router, chat())).body == b"ok"
    return upstream, router


async def test_after_the_last_byte_the_connection_is_forgotten(stage: Stage) -> None:
    upstream, router = await served_once(stage, on_arrival)
    pool = router.house.plane.pools[router.id_of(upstream)]
    await router.until(lambda: len(pool) == 0, "a dead connection is kept")
    assert (await stage.ask(router, chat())).body == b"ok"
    assert router.records.failed == []
    assert router.books(upstream).health.up


async def test_as_the_next_request_arrives_it_is_made_anew_and_counts_for_nobody(stage: Stage) -> None:
    async def when_asked_again(peer: Peer) -> None:
        await peer.request()

    upstream, router = await served_once(stage, when_asked_again)
    answer = await stage.ask(router, chat("again"))
    assert (answer.status, answer.body) == (200, b"ok")
    assert len(upstream.peers) == 2
    assert router.records.failed == []
    assert router.records.finished[-1].attempts == 1
    assert router.books(upstream).health.up


async def test_as_the_next_large_body_arrives_likewise(stage: Stage) -> None:
    async def within_the_next_body(peer: Peer) -> None:
        await peer.reader.readexactly(300_000)

    upstream, router = await served_once(stage, within_the_next_body)
    answer = await stage.ask(router, request("/v1/audio/transcriptions", BODY))
    assert (answer.status, answer.body) == (200, b"ok")
    assert upstream.peers[1].requests[0].body == BODY
    assert router.records.failed == []


async def test_one_whose_every_connection_is_reset_is_not_tried_for_ever(stage: Stage) -> None:
    """Once anew, and then it has failed."""

    async def script(peer: Peer) -> None:
        if peer.serial == 1:
            await peer.request()
            peer.send(OK)
        await peer.request()
        peer.reset()

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    assert (await stage.ask(router, chat())).status == 200
    assert (await stage.ask(router, chat())).status == 503
    assert len(upstream.peers) == 2
    assert router.records.failed == [(router.id_of(upstream), "reset")]
