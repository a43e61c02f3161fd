"""Heads and bodies that do not come are ended; who waits for its own answer is left in peace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.rig.client import CHAT, Client, chat, chunked, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer

HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n".encode()
LONG_S = 3600.0


async def start(stage: Stage, **settings: float) -> tuple[Router, Client]:
    limits: dict[str, Any] = {"head_timeout_s": LONG_S, "body_timeout_s": LONG_S} | settings
    router = await stage.router(await stage.replica(), **limits)
    return router, await stage.client(router)


def sweep(router: Router, later_s: float) -> None:
    """Look for slow clients as if it were later: no clock is waited for."""
    router.house.doorway.door.sweep(router.house.plane.clock() + later_s)


async def receiving(router: Router) -> None:
    await router.until(lambda: bool(router.house.doorway.door.receiving), "nothing is coming in")


async def read_more(router: Router, client: Client, data: bytes) -> None:
    """Send, and wait until it is read."""
    (connection,) = router.house.doorway.door.receiving
    before = connection._reads  # type: ignore[attr-defined]
    client.send(data)
    await router.until(lambda: connection._reads > before)  # type: ignore[attr-defined]


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"content-le"], ids=["a byte", "lines", "half a line"])
async def test_a_head_that_takes_too_long_is_408(stage: Stage, sent: bytes) -> None:
    router, client = await start(stage, head_timeout_s=20)
    client.send(sent)
    await receiving(router)
    sweep(router, 19)
    sweep(router, 21)
    answer = await client.answer()
    assert (answer.status, answer.error["code"], answer.header("connection")) == (408, "request_timeout", "close")
    await client.closed()
    assert not router.house.doorway.door.receiving


async def test_a_head_that_comes_byte_by_byte_has_no_more_time(stage: Stage) -> None:
    router, client = await start(stage, head_timeout_s=20)
    client.send(HEAD)
    await receiving(router)
    for number in range(5):
        await read_more(router, client, b"x-%d: 1\r\n" % number)
        sweep(router, 4 * number)
    sweep(router, 21)
    assert (await client.answer()).status == 408


async def test_a_body_that_does_not_go_on_is_408(stage: Stage) -> None:
    router, client = await start(stage, body_timeout_s=30)
    client.send(request(CHAT, b"{", headers=[("content-length", "10")]))
    await receiving(router)
    for later_s in (0, 29, 29.9):
        sweep(router, later_s)
    sweep(router, 31)
    answer = await client.answer()
    assert (answer.status, answer.header("connection")) == (408, "close")
    await client.closed()
    assert router.records.finished[-1].error == "request_timeout"


async def test_a_body_that_goes_on_has_all_the_time_it_needs(stage: Stage) -> None:
    router, client = await start(stage, body_timeout_s=30)
    whole = chat("some text of a length")
    client.send(whole[:-6])
    await receiving(router)
    for number in range(5):
        sweep(router, 25 * number)
        await read_more(router, client, whole[number - 6 : number - 5])
    sweep(router, 25 * 5)
    assert (await client.ask(whole[-1:])).status == 200
    assert not router.house.doorway.door.receiving


async def test_a_body_that_nobody_reads_ends_with_its_connection(stage: Stage) -> None:
    """It was answered before: another answer would be taken for the next request's."""
    router, client = await start(stage, body_timeout_s=30)
    client.send(request("/nowhere", b"x", headers=[("content-length", "10")]))
    assert (await client.answer()).status == 404
    sweep(router, 0)
    sweep(router, 31)
    assert (await client.remainder())[0] == b""


async def test_a_request_behind_one_that_is_being_answered_is_not_hurried(stage: Stage) -> None:
    begun = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await begun.wait()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nnew")

    upstream = await stage.upstream(script)
    router = await stage.router(upstream, head_timeout_s=20, body_timeout_s=20)
    client = await stage.client(router)
    whole = chat()
    client.send(chat() + whole[:20])
    await receiving(router)
    for later_s in (0, 21, 50):
        sweep(router, later_s)
    client.send(whole[20:-3])
    await upstream.peer()
    sweep(router, 75)
    sweep(router, 100)
    begun.set()
    assert (await client.answer()).body == b"ok"
    client.send(whole[-3:])
    assert (await client.answer()).body == b"new"


async def test_empty_lines_do_not_keep_a_connection_open(stage: Stage) -> None:
    router, client = await start(stage)
    for _ in range(3):
        client.send(b"\r\n")
        await client.turn()
    await router.until(lambda: len(router.house.plane.idle) == 1)
    (connection,) = router.house.plane.idle
    connection.close_if_idle(router.house.plane.clock() + 76)
    await client.closed()


async def test_a_connection_that_never_says_anything_is_closed_as_an_idle_one(stage: Stage) -> None:
    router, client = await start(stage)
    await router.until(lambda: len(router.house.plane.idle) == 1)
    (connection,) = router.house.plane.idle
    connection.close_if_idle(router.house.plane.clock() + 74)
    connection.close_if_idle(router.house.plane.clock() + 76)
    await client.closed()


@pytest.mark.parametrize("kind", ["extension", "trailer"])
async def test_framing_without_a_body_does_not_go_on_for_ever(stage: Stage, kind: str) -> None:
    router, client = await start(stage)
    begin = b"2;a=" if kind == "extension" else chunked(b"{}", last=b"0\r\nx-end: ")
    client.send(request(CHAT, begin, headers=[("transfer-encoding", "chunked")]))
    await receiving(router)
    for _ in range(8):
        client.send(b"x" * 60_000)
        await client.turn()
    assert (await client.answer()).status == 400


async def test_large_bodies_in_small_chunks_pass(stage: Stage) -> None:
    _, client = await start(stage)
    whole = chat("word " * 5_000).partition(b"\r\n\r\n")[2]
    parts = [whole[start : start + 3] for start in range(0, len(whole), 3)]
    client.send(request(CHAT, chunked(*parts), headers=[("transfer-encoding", "chunked")]))
    assert (await client.answer()).status == 200
