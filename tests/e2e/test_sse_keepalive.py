"""--sse-keepalive-s: comments keep a stream open that has not begun; what follows them is what the engine says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from router.proxy import plane
from router.sim.faults import Fault, FaultKind
from tests.e2e.test_queue import Full
from tests.faults.test_dies_mid_stream import events_until_cut
from tests.rig.client import Answer, Client, chat, chunked, request
from tests.rig.forms import FORMS, Form
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, ScriptedUpstream

COMMENT = b": waiting\n\n"
SOON_S = 0.05

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nx-of-the-engine: yes\r\n"
EVENTS = (b'data: {"n": 1}\n\n', b'data: {"n": 2}\n\ndata: {"n"', b": 3}\n\n", b"data: [DONE]\n\n")


@pytest.fixture(autouse=True)
def sweeps_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments are written by the sweep, which comes twice a second otherwise."""
    monkeypatch.setattr(plane, "SWEEP_S", SOON_S)


async def comments(client: Client, count: int = 2) -> Answer:
    """Read the head, and so many comments."""
    answer = await client.head()
    assert answer.status == 200
    assert (answer.header("content-type") or "").startswith("text/event-stream")
    for _ in range(count):
        assert await client.chunk(answer) == COMMENT
    return answer


async def rest(client: Client, answer: Answer) -> bytes:
    """Read on to the end of the body; return it without comments."""
    await client.rest(answer)
    return b"".join(chunk for chunk in answer.chunks if chunk != COMMENT)


class Slow:
    """An upstream that says nothing until it is told what."""

    def __init__(self) -> None:
        self.upstream: ScriptedUpstream
        self.router: Router
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()

    @classmethod
    async def on(cls, stage: Stage, **settings: Any) -> Slow:
        slow = cls()
        slow.upstream = await stage.upstream(slow._script)
        slow.router = await stage.router(slow.upstream, sse_keepalive_s=SOON_S, **settings)
        return slow

    async def _script(self, peer: Peer) -> None:
        await peer.request()
        while (part := await self._parts.get()) is not None:
            peer.send(part)
            await peer.writer.drain()
        peer.close()

    def say(self, *parts: bytes | None) -> None:
        """Send parts; None closes the connection."""
        for part in parts:
            self._parts.put_nowait(part)


# A stream that comes late


async def test_comments_come_while_a_request_is_queued_and_then_the_stream_as_ever(stage: Stage) -> None:
    full = await Full.of(stage, sse_keepalive_s=SOON_S)
    (client,) = await full.wait_with(chat("one", stream=True))
    answer = await comments(client)
    assert full.arrived() == []
    full.go()
    body = await rest(client, answer)
    assert body.endswith(b"data: [DONE]\n\n")
    assert (await client.ask(request("/livez"))).status == 200, "the connection serves the next request"


async def test_comments_come_while_a_prefill_is_silent_and_bytes_are_the_engines(stage: Stage) -> None:
    slow = await Slow.on(stage)
    client = await stage.client(slow.router)
    client.send(chat(stream=True))
    answer = await comments(client)
    slow.say(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    assert await client.chunk(answer) == COMMENT, "an engine's head is nothing to be seen yet"
    written = len(answer.raw_body)
    framed = chunked(*EVENTS)
    slow.say(framed[:30], framed[30:])
    await client.rest(answer)
    sent_on = answer.raw_body[written:]
    assert sent_on.replace(b"%x\r\n%b\r\n" % (len(COMMENT), COMMENT), b"") == framed
    record = slow.router.records.finished[-1]
    assert (record.status, record.outcome, record.error) == (200, "completed", None)
    assert record.ttft_s is not None
    assert record.ttft_s > SOON_S, "a comment is no token"
    assert answer.header("x-request-id")
    assert answer.replica is None, "it was not known when the head went out"


@pytest.mark.parametrize("framing", ["sized", "until close"])
async def test_other_framings_become_chunks(stage: Stage, framing: str) -> None:
    slow = await Slow.on(stage)
    client = await stage.client(slow.router)
    client.send(chat(stream=True))
    answer = await comments(client)
    line = b"content-length: %d\r\n" % len(b"".join(EVENTS)) if framing == "sized" else b""
    slow.say(HEAD + line + b"\r\n", *EVENTS)
    if framing == "until close":
        slow.say(None)
    assert await rest(client, answer) == b"".join(EVENTS)
    assert (await client.ask(request("/livez"))).status == 200


async def test_once_it_has_begun_there_are_no_more_comments(stage: Stage) -> None:
    slow = await Slow.on(stage)
    client = await stage.client(slow.router)
    client.send(chat(stream=True))
    slow.say(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunked(EVENTS[0], last=b""))
    answer = await client.head()
    assert answer.header("x-of-the-engine") == "yes"
    assert await client.chunk(answer) == EVENTS[0]
    other = await stage.client(slow.router)
    other.send(chat(stream=True))
    await comments(other)  # the sweep has been by twice
    slow.say(chunked(EVENTS[3]))
    assert await rest(client, answer) == EVENTS[0] + EVENTS[3]
    other.leave()


async def test_a_slow_reader_gets_everything(stage: Stage) -> None:
    slow = await Slow.on(stage)
    client = await stage.client(slow.router, receive_buffer_bytes=4_096, read_ahead_bytes=65_536)
    client.send(chat(stream=True))
    answer = await comments(client)
    events = [b"data: " + b"%d " % number * 20_000 + b"\n\n" for number in range(60)]
    slow.say(
        HEAD + b"transfer-encoding: chunked\r\n\r\n", *(chunked(event, last=b"") for event in events), b"0\r\n\r\n"
    )
    exchange = next(iter(slow.router.house.plane.active))
    await slow.router.until(lambda: exchange.paused, "nothing slows the engine down")  # type: ignore[attr-defined]
    assert await rest(client, answer) == b"".join(events)


async def test_a_retry_after_comments_goes_on_elsewhere(stage: Stage) -> None:
    bad = await Slow.on(stage)
    good = await stage.replica()
    router = await stage.router(bad.upstream, good, sse_keepalive_s=SOON_S)
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await comments(client)
    bad.say(None)
    body = await rest(client, answer)
    assert body.endswith(b"data: [DONE]\n\n")
    assert router.records.failed == [(router.id_of(bad.upstream.url), "reset")]
    assert router.records.finished[-1].attempts == 2


async def test_an_engine_that_pushes_back_after_comments_is_left_for_another(stage: Stage) -> None:
    bad = await Slow.on(stage)
    good = await stage.replica()
    router = await stage.router(bad.upstream, good, sse_keepalive_s=SOON_S)
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await comments(client)
    bad.say(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}")
    assert (await rest(client, answer)).endswith(b"data: [DONE]\n\n")


# Errors of the engine, which come when the status is out


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("status", [400, 429, 500, 503])
@pytest.mark.parametrize("framed", ["sized", "chunked"])
async def test_an_error_of_the_engine_is_one_event(stage: Stage, form: Form, status: int, framed: str) -> None:
    said = {"error": {"message": "no\nsuch thing", "type": "BadRequestError", "param": None, "code": status}}
    body = json.dumps(said, indent=1).encode()
    slow = await Slow.on(stage)
    client = await stage.client(slow.router)
    client.send(form.request(stream=True))
    answer = await comments(client)
    head = b"HTTP/1.1 %d Whatever\r\ncontent-type: application/json\r\n" % status
    if framed == "sized":
        slow.say(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    else:
        slow.say(head + b"transfer-encoding: chunked\r\n\r\n" + chunked(body[:9], body[9:]))
    event = await rest(client, answer)
    assert event.endswith(b"\n\n")
    *names, data = event.decode().strip().split("\n")
    assert names == (["event: error"] if form.path in ("/v1/messages", "/v1/responses") else [])
    assert json.loads(data.removeprefix("data: ")) == said
    assert (await client.ask(request("/livez"))).status == 200
    assert slow.router.records.finished[-1].outcome == {400: "completed", 500: "errored"}.get(status, "busy")


async def test_an_engines_error_that_breaks_off_is_an_error_of_the_router(stage: Stage) -> None:
    slow = await Slow.on(stage)
    client = await stage.client(slow.router)
    client.send(chat(stream=True))
    answer = await comments(client)
    slow.say(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{", None)
    *_, last = await events_until_cut(client, answer)
    assert FORMS["chat"].error_of(last)["code"] == "upstream_died"


# Errors of the router, which come as an event and a cut


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_one_that_waits_too_long_is_told_so_and_cut(stage: Stage, form: Form) -> None:
    full = await Full.of(stage, sse_keepalive_s=SOON_S, max_queue_wait_s=0.3)
    (client,) = await full.wait_with(form.request(stream=True))
    *_, last = await events_until_cut(client, await comments(client, 1))
    assert "max-queue-wait-s" in form.error_of(last)["message"]
    record = full.router.records.finished[-1]
    assert (record.error, record.status) == ("queue_full", 200), "what the client was sent, and why it ended"
    full.go()


async def test_a_model_unloaded_meanwhile_is_told(stage: Stage) -> None:
    full = await Full.of(stage, sse_keepalive_s=SOON_S)
    (client,) = await full.wait_with(chat("one", stream=True))
    answer = await comments(client, 1)
    full.router.books(full.replicas[0]).models = frozenset({"another-model"})
    *_, last = await events_until_cut(client, answer)
    error = FORMS["chat"].error_of(last)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "another-model" in error["message"]
    full.go()


async def test_when_every_attempt_has_failed_the_client_is_told(stage: Stage) -> None:
    slow = await Slow.on(stage)
    client = await stage.client(slow.router)
    client.send(chat(stream=True))
    answer = await comments(client)
    slow.say(None)
    *_, last = await events_until_cut(client, answer)
    assert FORMS["chat"].error_of(last)["code"] == "upstream_failed"


async def test_silence_without_end_is_told(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(replica, sse_keepalive_s=SOON_S, silence_timeout_s=0.5)
    client = await stage.client(router)
    client.send(chat(stream=True))
    *_, last = await events_until_cut(client, await comments(client, 1))
    assert FORMS["chat"].error_of(last)["code"] == "upstream_silent"


@pytest.mark.parametrize("framing", [b"transfer-encoding: chunked\r\n", b"content-length: 999\r\n", b""])
async def test_a_replica_that_dies_in_mid_stream_is_told(stage: Stage, framing: bytes) -> None:
    slow = await Slow.on(stage)
    client = await stage.client(slow.router)
    client.send(chat(stream=True))
    answer = await comments(client)
    first = chunked(EVENTS[0], last=b"") if b"chunked" in framing else EVENTS[0]
    slow.say(HEAD + framing + b"\r\n" + first)
    while (chunk := await client.chunk(answer)) == COMMENT:
        pass
    assert chunk == EVENTS[0]
    for peer in slow.upstream.peers:
        peer.reset()
    *_, last = await events_until_cut(client, answer)
    assert FORMS["chat"].error_of(last)["code"] == "upstream_died"
    assert b"[DONE]" not in answer.body


# Who gets none


async def test_an_answer_in_one_piece_gets_none(stage: Stage) -> None:
    full = await Full.of(stage, sse_keepalive_s=SOON_S)
    client, watch = await full.wait_with(chat("one"), chat("two", stream=True))
    await comments(watch)
    full.go()
    answer = await client.answer()
    assert answer.header("content-type") == "application/json"
    assert answer.json()["choices"]


@pytest.mark.parametrize("kind", ["HTTP/1.0", "HEAD"])
async def test_a_client_that_can_not_take_chunks_gets_none(stage: Stage, kind: str) -> None:
    full = await Full.of(stage, sse_keepalive_s=SOON_S)
    data = chat("one", stream=True, version="1.0" if kind == "HTTP/1.0" else "1.1")
    if kind == "HEAD":
        data = data.replace(b"POST ", b"HEAD ", 1)
    client, watch = await full.wait_with(data, chat("two", stream=True))
    await comments(watch)
    full.go()
    answer = await client.head()
    if kind == "HTTP/1.0":
        body, _ = await client.remainder()
        assert COMMENT not in body
        assert body.endswith(b"data: [DONE]\n\n")
    else:
        await full.router.idle()
        client.leave()
        assert await client.remainder() == (b"", "closed")
    assert answer.status in (200, 405)


async def test_none_come_where_they_are_not_asked_for(stage: Stage) -> None:
    full = await Full.of(stage)
    client, other = await full.wait_with(chat("one", stream=True), chat("two", stream=True))
    sweeps = full.router.house.plane.clock() + 6 * SOON_S
    await full.router.until(lambda: full.router.house.plane.clock() > sweeps)
    full.go()
    for each in (client, other):
        assert COMMENT not in (await each.answer()).body


# The client leaves


async def test_a_client_that_leaves_after_comments_leaves_the_queue(stage: Stage) -> None:
    full = await Full.of(stage, sse_keepalive_s=SOON_S)
    (client,) = await full.wait_with(chat("one", stream=True))
    await comments(client)
    client.leave()
    await full.router.until(lambda: full.held == 0)
    assert full.router.records.finished[-1].outcome == "client-left"
    full.go()


async def test_a_client_that_leaves_after_comments_has_its_upstream_closed(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(replica, sse_keepalive_s=SOON_S)
    client = await stage.client(router)
    client.send(chat(stream=True))
    await comments(client)
    client.leave()
    await replica.wait_for(lambda: replica.requests[0].left_early, 5.0)
    assert router.records.finished[-1].outcome == "client-left"
