"""A key's limits: 429 with the time after which it goes on, and counts that come back to zero."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from router.adapters.client_keys import digest_of
from router.core.allowance import Allowance
from router.core.types import Usage
from router.proxy.door import tokens_used
from tests.rig.client import Client, chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage

KEY = [("authorization", "Bearer alpha")]
OTHER = [("authorization", "Bearer beta")]


async def start(stage: Stage, time_scale: float = 1_000.0, **limits: Any) -> tuple[Router, Client]:
    router = await stage.router(await stage.replica(time_scale=time_scale), api_keys="alpha, beta", **limits)
    return router, await stage.client(router)


def used(router: Router) -> Allowance:
    return router.house.doorway.door.allowances[f"key-{digest_of('alpha').hex()[:8]}"]


async def test_requests_a_minute(stage: Stage) -> None:
    _, client = await start(stage, key_requests_per_minute=3)
    remaining = []
    for _ in range(3):
        answer = await client.ask(chat(headers=KEY))
        assert answer.status == 200
        assert answer.header("x-ratelimit-limit-requests") == "3"
        remaining.append(answer.header("x-ratelimit-remaining-requests"))
    assert remaining == ["2", "1", "0"]
    answer = await client.ask(chat(headers=KEY))
    assert answer.status == 429
    assert (answer.error["code"], answer.error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
    assert "limit of 3 requests a minute of key key-" in answer.error["message"]
    assert 50 <= int(answer.header("retry-after") or 0) <= 61
    assert answer.header("x-ratelimit-remaining-requests") == "0"
    assert (answer.header("x-ratelimit-reset-requests") or "").startswith(("1m0s", "1m1s", "5"))
    assert (await client.ask(chat(headers=OTHER))).status == 200, "the other key has its own"
    assert (await client.ask(request("/v1/models", headers=KEY))).status == 200, "the list costs nothing"


async def test_tokens_a_minute_are_the_engines_own_count(stage: Stage) -> None:
    router, client = await start(stage, key_tokens_per_minute=200)
    answer = await client.ask(chat("word " * 150, headers=KEY))
    assert answer.status == 200
    usage = answer.json()["usage"]
    assert used(router).tokens.total(router.house.plane.clock()) == usage["prompt_tokens"] + usage["completion_tokens"]
    statuses: list[int] = []
    while not statuses or statuses[-1] == 200:
        statuses.append((await client.ask(chat("word " * 150, headers=KEY))).status)
        assert len(statuses) < 4
    assert statuses[-1] == 429


async def test_a_stream_without_usage_is_charged_too(stage: Stage) -> None:
    router, client = await start(stage, key_tokens_per_minute=100_000)
    answer = await client.ask(chat("word " * 400, headers=KEY, stream=True, max_tokens=20, ignore_eos=True))
    assert b'"usage"' not in answer.body
    assert used(router).tokens.total(router.house.plane.clock()) > 200


async def test_concurrent_requests(stage: Stage) -> None:
    router, client = await start(stage, time_scale=1.0, key_concurrent_requests=1)
    head = await client.ask_head(chat(headers=KEY, stream=True, max_tokens=400, ignore_eos=True))
    assert head.status == 200
    other = await stage.client(router)
    answer = await other.ask(chat(headers=KEY))
    assert (answer.status, answer.header("retry-after")) == (429, "1")
    assert "1 concurrent requests" in answer.error["message"]
    client.leave()
    await router.idle()
    assert (await other.ask(chat(headers=KEY))).status == 200


async def test_anthropics_form_of_429(stage: Stage) -> None:
    _, client = await start(stage, key_requests_per_minute=1)
    for status in (200, 429):
        body = {"model": "sim-model", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}
        answer = await client.ask(request("/v1/messages", body, headers=[("x-api-key", "alpha")]))
        assert answer.status == status
    assert answer.json()["error"]["type"] == "rate_limit_error"


async def test_however_requests_end_they_are_counted_out(stage: Stage) -> None:
    router, _ = await start(stage, time_scale=5.0, key_concurrent_requests=50, key_tokens_per_minute=10**9)

    async def visit(number: int) -> None:
        client = await stage.client(router)
        if number % 4 == 0:
            client.send(request("/v1/chat/completions", b"{", headers=[*KEY, ("content-length", "99")]))
            await client.turn()
            client.reset()
            return
        client.send(chat(headers=KEY, stream=True, max_tokens=50, ignore_eos=True) + chat(headers=KEY))
        if number % 4 == 1:
            await client.turn()
        elif number % 4 == 2:
            await client.head()
        else:
            await client.answer()
            await client.answer()
        client.leave()

    async with asyncio.TaskGroup() as group:
        for number in range(24):
            group.create_task(visit(number))
    await router.until(lambda: used(router).running == 0, "requests are still counted in")


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        (Usage(10, 4, 5), 15),
        (Usage(), 107),
        (Usage(prompt_tokens=10), 17),
        (Usage(prompt_tokens=0, completion_tokens=0), 0),
    ],
)
def test_what_the_engine_does_not_say_is_estimated(usage: Usage, charged: int) -> None:
    assert tokens_used(usage, prompt_tokens=100, reads=7) == charged
