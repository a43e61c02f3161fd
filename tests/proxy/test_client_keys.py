"""Who has no key is refused before the upload, and a key that opens the router reaches no engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.adapters.client_keys import stanza
from router.core.allowance import KeyLimits
from tests.rig.client import CHAT, chat, chunked, request
from tests.rig.stage import Stage
from tests.rig.upstream import answering

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
KEYS = "first-key, second-key"

WAYS = {
    "OpenAI's": ("authorization", "Bearer second-key"),
    "lower case": ("Authorization", "bearer second-key"),
    "Anthropic's": ("x-api-key", "second-key"),
    "Azure's": ("api-key", "first-key"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_key_may_come_in_any_clients_way(stage: Stage, way: tuple[str, str]) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, api_keys=KEYS)
    assert (await stage.ask(router, chat(headers=[way]))).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer third-key")],
        [("authorization", "first-key")],
        [("authorization", "Basic first-key")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer first-key, second-key")],
        [("x-api-key", "Bearer first-key")],
        [("authorization", "Bearer wrong"), ("authorization", "Bearer first-key")],
        [("cookie", "first-key")],
    ],
)
async def test_without_a_valid_key_it_is_401_and_the_connection_goes_on(
    stage: Stage, headers: list[tuple[str, str]]
) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, api_keys=KEYS)
    client = await stage.client(router)
    answer = await client.ask(chat(headers=headers))
    assert answer.status == 401
    assert (answer.error["code"], answer.error["type"]) == ("invalid_api_key", "invalid_request_error")
    assert (answer.header("www-authenticate") or "").startswith("Bearer")
    assert answer.header("x-request-id")
    assert upstream.requests == []
    assert (await client.ask(chat(headers=[("api-key", "first-key")]))).status == 200


async def test_anthropics_path_has_anthropics_form(stage: Stage) -> None:
    router = await stage.router(api_keys=KEYS)
    answer = await stage.ask(router, request("/v1/messages", b"{}"))
    assert answer.status == 401
    assert answer.json()["error"]["type"] == "authentication_error"


async def test_models_need_a_key_and_probes_do_not(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), api_keys=KEYS)
    client = await stage.client(router)
    for path, status in (("/livez", 200), ("/health", 200), ("/readyz", 200), ("/nowhere", 404), ("/v1/models", 401)):
        assert (await client.ask(request(path))).status == status
    assert (await client.ask(request("/v1/models", method="HEAD"))).status == 401
    assert (await client.ask(request("/v1/models", headers=[("x-api-key", "first-key")]))).status == 200


async def test_it_is_refused_before_the_upload(stage: Stage) -> None:
    router = await stage.router(api_keys=KEYS)
    client = await stage.client(router)
    client.send(request(CHAT, b"", headers=[("content-length", str(64 << 20))]))
    answer = await client.answer()
    assert (answer.status, answer.header("connection")) == (401, "close")
    await client.closed()


async def test_a_client_that_waits_for_100_gets_its_401_instead(stage: Stage) -> None:
    router = await stage.router(api_keys=KEYS)
    client = await stage.client(router)
    client.send(request(CHAT, b"", headers=[("content-length", "5"), ("expect", "100-continue")]))
    assert (await client.answer()).status == 401
    await client.closed()


async def test_a_refused_body_is_not_taken_for_a_request(stage: Stage) -> None:
    """Small bodies are read away, others end the connection; in neither case is one read as requests."""
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, api_keys=KEYS)
    hidden = chat(headers=[("api-key", "first-key")])
    client = await stage.client(router)
    client.send(request(CHAT, hidden) + request("/livez"))
    assert (await client.answer()).status == 401
    assert (await client.answer()).status == 200, "the next request is the one behind the body"
    client.send(request(CHAT, chunked(hidden), headers=[("transfer-encoding", "chunked")]) + hidden)
    assert (await client.answer()).status == 401
    await client.closed()
    assert upstream.requests == []


async def test_pipelined_requests_are_each_looked_at_in_their_turn(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), api_keys=KEYS)
    client = await stage.client(router)
    good = chat(headers=[("api-key", "first-key")])
    client.send(good + chat() + request("/v1/models") + good + chat() + chat() + good)
    assert [(await client.answer()).status for _ in range(7)] == [200, 401, 401, 200, 401, 401, 200]


@pytest.mark.parametrize("engine_key", [None, "fleet-key"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_key_that_opens_the_router_reaches_no_engine(
    stage: Stage, engine_key: str | None, way: tuple[str, str]
) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, api_keys=KEYS, engine_api_key=engine_key)
    await stage.ask(router, chat(headers=[way, ("x-api-key", "second-key"), ("api-key", "second-key")]))
    received = upstream.requests[0]
    assert received.all("authorization") == ([f"Bearer {engine_key}"] if engine_key else [])
    assert b"second-key" not in received.raw_head
    assert b"first-key" not in received.raw_head


async def test_the_engines_key_takes_the_place_of_all_kinds(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, engine_api_key="fleet-key")
    await stage.ask(router, chat(headers=[(name, "mine") for name in ("x-api-key", "api-key", "authorization")]))
    assert b"mine" not in upstream.requests[0].raw_head
    assert upstream.requests[0].all("authorization") == ["Bearer fleet-key"]


async def test_without_keys_in_the_settings_clients_keys_pass(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream)
    await stage.ask(router, chat(headers=[("x-api-key", "mine"), ("api-key", "own")]))
    assert (upstream.requests[0].header("x-api-key"), upstream.requests[0].header("api-key")) == ("mine", "own")


async def test_a_key_file_opens_and_its_change_holds_without_a_restart(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(stanza("alice", "secret-a", KeyLimits()))
    router = await stage.router(await stage.replica(), api_keys_file=path)
    client = await stage.client(router)
    alice, bob = chat(headers=[("api-key", "secret-a")]), chat(headers=[("api-key", "secret-b")])
    assert [(await client.ask(sent)).status for sent in (alice, bob)] == [200, 401]
    path.write_text(stanza("bob", "secret-b", KeyLimits()) + "# changed\n")
    await router.house.doorway.look()
    assert [(await client.ask(sent)).status for sent in (alice, bob)] == [401, 200]
    path.write_text("[keys")
    await router.house.doorway.look()
    assert [(await client.ask(sent)).status for sent in (alice, bob)] == [401, 200]


async def test_file_and_setting_together_open_to_both(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(stanza("alice", "secret-a", KeyLimits()))
    router = await stage.router(await stage.replica(), api_keys_file=path, api_keys="listed-key")
    client = await stage.client(router)
    for key, status in (("secret-a", 200), ("listed-key", 200), ("other", 401)):
        assert (await client.ask(chat(headers=[("api-key", key)]))).status == status


async def test_no_refusal_tells_of_a_key(stage: Stage) -> None:
    router = await stage.router(api_keys=KEYS, key_requests_per_minute=1)
    client = await stage.client(router)
    for headers in ([("api-key", "wrong-key")], [("api-key", "first-key")], [("api-key", "first-key")]):
        answer = await client.ask(chat(headers=headers))
        assert b"first-key" not in answer.raw_head + answer.body
        assert b"wrong-key" not in answer.raw_head + answer.body
