"""The main job: a chat's next turn lands on the replica that holds its history, and what is predicted is what comes."""

from __future__ import annotations

from typing import Any

import pytest

from router.sim.types import EngineConfig
from tests.rig.client import CHAT, Answer, Client, request
from tests.rig.stage import Stage
from tests.rig.talks import BLOCK_TOKENS, TALKS, ChatTalk, fleet_of, text


def close(predicted: int, reported: int) -> bool:
    return abs(predicted - reported) <= max(BLOCK_TOKENS, 0.05 * reported)


@pytest.mark.parametrize("kind", TALKS)
async def test_every_follow_up_lands_warm_and_what_it_will_find_is_known_before(stage: Stage, kind: str) -> None:
    """Eight conversations of five turns, interleaved: predicted and reported tokens differ by a block or 5 %."""
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    talks = [TALKS[kind](number) for number in range(8)]
    homes: dict[int, str | None] = {}
    wrong = []
    for turn in range(5):
        for talk in talks:
            answer = await client.ask(request(talk.path, {"model": "sim-model"} | talk.ask()))
            assert answer.status == 200, answer.body
            prompt, cached = talk.take(answer)
            if turn:
                assert answer.reason == "warm"
                assert answer.replica == homes[talk.number]
                assert cached > 0.6 * prompt
                if not close(answer.matched_tokens, cached):
                    wrong.append((turn, talk.number, answer.matched_tokens, cached))
            homes[talk.number] = answer.replica
    assert len(set(homes.values())) == 4, "the conversations are spread"
    assert not wrong


async def test_a_fleet_hits_what_one_cache_of_its_size_would_and_no_replica_does_all_the_work(stage: Stage) -> None:
    router, replicas = await fleet_of(stage)
    client = await stage.client(router)
    talks = [ChatTalk(number, stream=False) for number in range(12)]
    sent = []
    for _ in range(4):
        for talk in talks:
            sent.append(request(talk.path, {"model": "sim-model"} | talk.ask()))
            talk.take(await client.ask(sent[-1]))
    pooled = await stage.replica(engine=EngineConfig(kv_tokens=4 * 300_000))
    direct = await stage.client(pooled)
    for message in sent:
        await direct.ask(message)
    hits = sum(replica.engine.stats.prefix_hits_tokens for replica in replicas)
    assert hits >= 0.95 * pooled.engine.stats.prefix_hits_tokens
    work = [
        replica.engine.stats.prefix_queries_tokens - replica.engine.stats.prefix_hits_tokens for replica in replicas
    ]
    assert max(work) <= 1.3 * sum(work) / len(work)


# What the match is


def turns(*contents: str, roles: tuple[str, ...] = ("user", "assistant")) -> list[dict[str, Any]]:
    return [{"role": roles[place % 2], "content": content} for place, content in enumerate(contents)]


async def cached_of(client: Client, messages: list[dict[str, Any]], **fields: Any) -> tuple[Answer, int]:
    body = {"model": "sim-model", "messages": messages, "max_tokens": 2} | fields
    answer = await client.ask(request(CHAT, body))
    cached: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return answer, cached


@pytest.mark.parametrize("edited", [1, 2, 3, 5])
async def test_editing_message_k_keeps_the_match_up_to_k(stage: Stage, edited: int) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    contents = [text(number) for number in range(7)]
    for stop in (1, 3, 5, 7):  # the chat grows by a turn, so that the ends of its turns are known
        first, _ = await cached_of(client, turns(*contents[:stop]))
    contents[edited] = text(99)
    answer, cached = await cached_of(client, turns(*contents))
    assert answer.replica == first.replica
    assert close(answer.matched_tokens, cached), (answer.matched_tokens, cached)
    before = sum(len(content) for content in contents[:edited]) // 6
    assert cached > 0.8 * before


async def test_a_trimmed_head_matches_nothing_and_says_so(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    contents = [text(number) for number in range(5)]
    await cached_of(client, turns(*contents))
    answer, cached = await cached_of(client, turns(*contents[2:]))
    assert (answer.matched_tokens, cached, answer.reason) == (0, 0, "new")


@pytest.mark.parametrize(
    "other",
    [
        {"model": "second-model"},
        {"cache_salt": "tenant-2"},
        {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]},
    ],
    ids=["model", "salt", "tools"],
)
async def test_another_scope_is_another_prefix(stage: Stage, other: dict[str, Any]) -> None:
    router, _ = await fleet_of(stage, models=("sim-model", "second-model"))
    client = await stage.client(router)
    messages = turns(text(1), text(2), text(3))
    await cached_of(client, messages, cache_salt="tenant-1")
    warm, _ = await cached_of(client, messages, cache_salt="tenant-1")
    assert warm.reason == "warm"
    answer, _ = await cached_of(client, messages, **({"cache_salt": "tenant-1"} | other))
    assert (answer.reason, answer.matched_tokens) == ("new", 0)


async def test_the_same_words_of_another_speaker_are_another_prefix(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    await cached_of(client, turns(text(1), text(2), text(3)))
    answer, cached = await cached_of(client, turns(text(1), text(2), text(3), roles=("assistant", "user")))
    assert (answer.reason, answer.matched_tokens) == ("new", 0)
    assert cached < BLOCK_TOKENS * 2
