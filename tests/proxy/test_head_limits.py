"""How large a head may be, how long a target, and how many clients there may be."""

from __future__ import annotations

import pytest

from router.proxy.door import MAX_FIELDS
from tests.rig.client import CHAT, chat, request
from tests.rig.stage import Stage
from tests.rig.upstream import answering

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.mark.parametrize("path", [CHAT, "/livez"])
async def test_a_head_above_the_limit_is_431(stage: Stage, path: str) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, max_head_bytes=2048)
    client = await stage.client(router)
    assert (await client.ask(request(path, headers=[("x-a", "y" * 1500)]))).status == 200
    answer = await client.ask(request(path, headers=[("x-a", "y" * 2100)]))
    assert (answer.status, answer.error["code"], answer.header("connection")) == (431, "head_too_large", "close")
    await client.closed()


async def test_a_head_without_an_end_is_431_before_it_fills_the_memory(stage: Stage) -> None:
    router = await stage.router(max_head_bytes=65_536)
    client = await stage.client(router)
    client.send(b"GET /v1/x HTTP/1.1\r\nx-a: ")
    for _ in range(8):
        client.send(b"y" * 60_000)
        await client.turn()
    assert (await client.answer()).status == 431


async def test_a_body_does_not_count_as_head(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, max_head_bytes=2048)
    client = await stage.client(router)
    client.send(chat("x" * 10_000) + chat("y" * 10_000) + chat("z", headers=[("x-a", "y" * 1500)]))
    assert [(await client.answer()).status for _ in range(3)] == [200, 200, 200]


async def test_more_fields_than_any_client_sends_are_431(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(answering(OK)))
    fields = [(f"x-{number}", "1") for number in range(MAX_FIELDS)]
    assert (await stage.ask(router, request(CHAT, headers=fields[:-1]))).status == 200
    assert (await stage.ask(router, request(CHAT, headers=fields))).status == 431


async def test_a_target_above_the_limit_is_414(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, max_url_bytes=100)
    client = await stage.client(router)
    target = "/v1/x?" + "y" * 94
    assert (await client.ask(request(target))).status == 200
    answer = await client.ask(request(target + "y"))
    assert (answer.status, answer.error["code"]) == (414, "url_too_long")
    await client.closed()
    assert len(upstream.requests) == 1


async def test_a_refused_head_waits_for_the_answers_before_it(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), max_url_bytes=100)
    client = await stage.client(router)
    client.send(chat() + request("/v1/" + "x" * 200))
    answer = await client.answer()
    assert answer.status == 200
    await client.closed()


async def test_a_connection_too_many_is_503_and_closed_at_once(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), max_connections=2)
    first, second = await stage.client(router), await stage.client(router)
    for client in (first, second):
        assert (await client.ask(chat())).status == 200
    third = await stage.client(router)
    answer = await third.answer()
    assert (answer.status, answer.error["code"], answer.header("retry-after")) == (503, "too_many_connections", "1")
    assert answer.header("connection") == "close"
    await third.closed()
    assert (await first.ask(chat())).status == 200


async def test_its_answer_comes_through_though_it_had_sent_its_request(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), max_connections=1)
    first = await stage.client(router)
    assert (await first.ask(chat())).status == 200
    for _ in range(5):
        late = await stage.client(router)
        assert (await late.ask(chat("x" * 500_000))).status == 503
        late.leave()
    first.leave()
    await router.until(lambda: not router.house.plane.idle)
    assert (await stage.ask(router, chat())).status == 200, "those that were turned away take no place"


async def test_very_many_too_many_are_only_closed(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), max_connections=1)
    first = await stage.client(router)
    assert (await first.ask(chat())).status == 200
    crowd = [await stage.client(router) for _ in range(80)]
    for client in crowd:
        data, _ = await client.remainder()
        assert data.startswith(b"HTTP/1.1 503 ")
    assert (await first.ask(chat())).status == 200
