"""The replica is lost in the middle of its answer: an error event and a cut connection, never a clean end."""

import asyncio

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import Answer, Client, chat, chunked
from tests.rig.forms import FORMS, Form
from tests.rig.stage import Stage
from tests.rig.upstream import Peer

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


async def events_until_cut(client: Client, answer: Answer) -> list[bytes]:
    """The chunks up to the end of the connection; fails on a clean end of the body."""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        while True:
            assert await client.chunk(answer), "the body ended as if it were complete"
    return answer.chunks


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("abort", [True, False], ids=["reset", "closed"])
async def test_a_stream_ends_with_an_error_event_of_its_api_and_a_cut(stage: Stage, form: Form, abort: bool) -> None:
    dying, other = await stage.replicas(2)
    dying.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=5, abort=abort))
    router = await stage.router(dying, other)
    client = await stage.client(router)
    client.send(form.request(stream=True, max_tokens=50, ignore_eos=True))
    answer = await client.head()
    assert answer.status == 200
    *before, last = await events_until_cut(client, answer)
    assert before, "what had come was passed on"
    error = form.error_of(last)
    assert "incomplete" in error["message"]
    assert form.good_end not in answer.body
    assert not other.requests, "nothing is made twice once the client has part of an answer"
    assert router.records.finished[-1].outcome == "died"
    assert router.records.finished[-1].error == "upstream_died"
    assert not router.books(dying).health.up


async def test_a_whole_answer_cut_in_its_middle_stays_cut(stage: Stage) -> None:
    dying, other = await stage.replicas(2)
    dying.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=1))
    router = await stage.router(dying, other)
    client = await stage.client(router)
    client.send(chat())
    answer = await client.head()
    rest, _ = await client.remainder()
    assert len(rest) < int(answer.header("content-length") or 0)
    assert b"error" not in rest, "nothing is put into a JSON answer"


@pytest.mark.parametrize("cut", [b"20\r\ndata: half of what was", b"2", b"20\r\ndata: 123456789012345678901234\n\n\r"])
async def test_cut_within_a_chunk_nothing_is_written_into_it(stage: Stage, cut: bytes) -> None:
    whole = chunked(b"data: 1\n\n", last=b"")
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + whole)
        await go.wait()
        peer.send(cut)
        await peer.writer.drain()
        peer.close()

    router = await stage.router(await stage.upstream(script))
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await client.head()
    assert await client.event(answer) == 1
    go.set()
    rest, _ = await client.remainder()
    assert cut.startswith(rest)


async def test_cut_within_an_event_but_behind_a_chunk_no_event_is_glued_to_it(stage: Stage) -> None:
    """An event in two chunks: an error event between them would become part of the first."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunked(b"data: 1\n\n", b'data: {"half', last=b""))
        await peer.writer.drain()
        peer.close()

    router = await stage.router(await stage.upstream(script))
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await client.head()
    chunks = await events_until_cut(client, answer)
    assert chunks[:2] == [b"data: 1\n\n", b'data: {"half']
    body = b"".join(chunks)
    assert b'{"halfdata:' not in body


async def test_a_close_delimited_stream_that_is_reset_is_not_made_a_clean_end(stage: Stage) -> None:
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + b"\r\ndata: 1\n\n")
        await go.wait()
        peer.reset()

    router = await stage.router(await stage.upstream(script))
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await client.head()
    assert await client.event(answer) == 1
    go.set()
    *_, last = await events_until_cut(client, answer)
    assert FORMS["chat"].error_of(last)["code"] == "upstream_died"


async def test_an_http_1_0_client_gets_the_error_event_too(stage: Stage) -> None:
    dying = await stage.replica()
    dying.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=5))
    router = await stage.router(dying)
    client = await stage.client(router)
    client.send(chat(version="1.0", stream=True, max_tokens=50, ignore_eos=True))
    await client.head()
    rest, _ = await client.remainder()
    last = rest.strip(b"\n").split(b"\n\n")[-1]
    assert FORMS["chat"].error_of(last)["code"] == "upstream_died"
    assert b"[DONE]" not in rest


async def test_other_streams_of_other_replicas_go_on(stage: Stage) -> None:
    dying, living = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(dying, living)
    clients = [await stage.client(router) for _ in range(2)]
    answers = []
    for client in clients:
        client.send(chat(stream=True, max_tokens=10, ignore_eos=True))
        answers.append(await client.head())
        await client.chunk(answers[-1])
    dying.restart_cold()
    await events_until_cut(clients[0], answers[0])
    await clients[1].rest(answers[1])
    assert answers[1].events()[-1] == "[DONE]"


async def test_the_client_can_go_on_where_the_replica_can_not(stage: Stage) -> None:
    dying, other = await stage.replicas(2)
    router = await stage.router(dying, other)
    dying.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=3))
    client = await stage.client(router)
    client.send(chat(stream=True, max_tokens=20, ignore_eos=True))
    await events_until_cut(client, await client.head())
    again = await stage.ask(router, chat(stream=True))
    assert (again.status, again.replica) == (200, router.id_of(other))
