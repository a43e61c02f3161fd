"""Web pages of allowed origins may call; without the setting the engines' own headers pass."""

from __future__ import annotations

import pytest

from tests.rig.client import CHAT, Answer, chat, request
from tests.rig.stage import Stage
from tests.rig.upstream import answering

PAGE = "https://chat.example"
ENGINES = "access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\n"
OK = f"HTTP/1.1 200 OK\r\n{ENGINES}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}".encode()
ORIGIN = [("origin", PAGE)]


def preflight(origin: str = PAGE, path: str = CHAT, wanted: str = "authorization, content-type") -> bytes:
    asked = [("origin", origin), ("access-control-request-method", "POST"), ("access-control-request-headers", wanted)]
    return request(path, method="OPTIONS", headers=asked)


def allowed(answer: Answer) -> str | None:
    return answer.header("access-control-allow-origin")


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/tokenize"])
async def test_a_preflight_is_answered_by_the_router_without_a_key(stage: Stage, path: str) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, cors_origin=PAGE, api_keys="alpha")
    client = await stage.client(router)
    answer = await client.ask(preflight(path=path))
    assert (answer.status, allowed(answer), answer.header("vary")) == (204, PAGE, "Origin")
    assert "POST" in (answer.header("access-control-allow-methods") or "")
    assert answer.header("access-control-allow-headers") == "authorization, content-type"
    assert upstream.requests == []
    assert (await client.ask(request("/livez"))).status == 200


async def test_a_page_of_another_origin_is_not_let_in(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(answering(OK)), cors_origin=PAGE)
    assert allowed(await stage.ask(router, preflight("https://evil.example"))) is None
    answer = await stage.ask(router, chat(headers=[("origin", "https://evil.example")]))
    assert (answer.status, allowed(answer)) == (200, None), "nor by the engine's own word"
    assert answer.header("access-control-allow-credentials") is None


async def test_answers_carry_the_routers_headers_in_place_of_the_engines(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(answering(OK)), cors_origin=PAGE)
    answer = await stage.ask(router, chat(headers=ORIGIN))
    assert (allowed(answer), answer.header("access-control-allow-credentials")) == (PAGE, None)
    assert "x-request-id" in (answer.header("access-control-expose-headers") or "")
    assert "Origin" in answer.all("vary")


@pytest.mark.parametrize("asked", [request("/v1/models", headers=ORIGIN), request("/nowhere", headers=ORIGIN)])
async def test_so_do_the_routers_own_answers(stage: Stage, asked: bytes) -> None:
    router = await stage.router(cors_origin=PAGE)
    assert allowed(await stage.ask(router, asked)) == PAGE


@pytest.mark.parametrize("keys", [None, "alpha"])
async def test_so_do_errors(stage: Stage, keys: str | None) -> None:
    router = await stage.router(cors_origin=PAGE, api_keys=keys)
    answer = await stage.ask(router, chat(headers=ORIGIN))
    assert (answer.status, allowed(answer)) == (401 if keys else 503, PAGE)


async def test_a_star_lets_everybody_in(stage: Stage) -> None:
    router = await stage.router(await stage.upstream(answering(OK)), cors_origin="*")
    answer = await stage.ask(router, chat(headers=[("origin", "https://any.example")]))
    assert (allowed(answer), answer.header("vary")) == ("*", None)


async def test_a_preflight_can_not_split_the_answer(stage: Stage) -> None:
    router = await stage.router(cors_origin="*")
    for wanted in ('x-a: "b"', "x\ty", "caf\u00e9", "x" * 5000):
        answer = await stage.ask(router, preflight(wanted=wanted))
        assert (answer.status, answer.header("access-control-allow-headers")) == (204, None)


async def test_without_the_setting_the_engines_headers_and_preflights_pass(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    answer = await stage.ask(router, preflight())
    assert (answer.status, allowed(answer)) == (200, "*")
    assert answer.header("access-control-allow-credentials") == "true"
    assert upstream.requests[0].method == "OPTIONS"


async def test_an_options_request_that_is_no_preflight_goes_to_the_engine(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, cors_origin=PAGE)
    assert (await stage.ask(router, request(CHAT, method="OPTIONS", headers=ORIGIN))).status == 200
    assert upstream.requests[0].method == "OPTIONS"
