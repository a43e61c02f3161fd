"""Prompts that share their beginning, or have none, spread over the fleet; sessions that have a home keep it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.rig.client import CHAT, Client, chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import SYSTEM, ChatTalk, fleet_of, text


async def together(stage: Stage, router: Router, prompts: list[bytes]) -> Counter[str | None]:
    clients = [await stage.client(router) for _ in prompts]

    async def one(client: Client, prompt: bytes) -> str | None:
        answer = await client.ask(prompt)
        assert answer.status == 200
        return answer.replica

    return Counter(await asyncio.gather(*(one(*pair) for pair in zip(clients, prompts, strict=True))))


def shared(number: int, **fields: Any) -> bytes:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text(number)}]
    return request(CHAT, {"model": "sim-model", "messages": messages, "max_tokens": 8} | fields)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_burst_right_after_start_spreads_whatever_its_prompts_share(stage: Stage, stream: bool) -> None:
    router, _ = await fleet_of(stage, time_scale=1.0)
    counts = await together(stage, router, [shared(number, stream=stream) for number in range(48)])
    assert sum(counts.values()) == 48
    assert len(counts) == 4
    assert max(counts.values()) <= 18, counts


async def test_a_burst_spreads_before_anything_is_known_of_the_engines(stage: Stage) -> None:
    replicas = await stage.replicas(4, time_scale=1.0)
    router = await stage.router(*replicas)
    counts = await together(stage, router, [shared(number) for number in range(48)])
    assert max(counts.values()) <= 18, counts


async def test_serial_prompts_spread_though_nothing_is_ever_in_flight(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    counts = Counter([(await client.ask(shared(number))).replica for number in range(200)])
    assert len(counts) == 4
    assert min(counts.values()) >= 30, counts


async def test_short_questions_behind_one_long_example_spread(stage: Stage) -> None:
    """A batch of completions that differ in their last words only: none of them goes on where another ended."""
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    prompts = [f"{SYSTEM}\nQuestion: {number} + {number}?\nAnswer:" for number in range(100, 220)]
    bodies = [{"model": "sim-model", "prompt": prompt, "max_tokens": 4} for prompt in prompts]
    counts = Counter([(await client.ask(request("/v1/completions", body))).replica for body in bodies])
    assert len(counts) == 4
    assert min(counts.values()) >= 15, counts


async def test_keyless_requests_share_no_key(stage: Stage) -> None:
    """Prompts under one block are placed by load, the same words again and again included."""
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    answers = [await client.ask(chat("hi")) for _ in range(40)]
    assert {answer.reason for answer in answers} == {"keyless"}
    assert {answer.matched_tokens for answer in answers} == {0}
    assert Counter(answer.replica for answer in answers).most_common()[-1][1] >= 8


async def test_one_hot_replica_does_not_send_the_others_sessions_wandering(stage: Stage) -> None:
    router, _ = await fleet_of(stage, time_scale=1.0)
    client, loader = await stage.client(router), await stage.client(router)
    talks = [ChatTalk(number, stream=False) for number in range(8)]
    homes = {}
    for talk in talks:
        answer = await client.ask(request(CHAT, {"model": "sim-model", "max_tokens": 4} | talk.ask()))
        talk.take(answer)
        homes[talk.number] = answer.replica
    loader.send(chat(text(9_000, 20_000), stream=True, max_tokens=4))
    await router.until(lambda: bool(router.in_flight))
    (hot,) = router.in_flight
    for talk in talks:
        if homes[talk.number] != hot:
            answer = await client.ask(request(CHAT, {"model": "sim-model", "max_tokens": 4} | talk.ask()))
            assert (answer.replica, answer.reason) == (homes[talk.number], "warm")
    assert router.in_flight[hot][1] > 10_000, "it was hot all the time"
    loader.leave()
