"""The main job: a chat's next turn lands on the replica that holds its history, and what is predicted is what comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from router.sim.replica import SimReplica
from tests.rig.client import CHAT, Answer, Client, chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage

BLOCK_TOKENS = 16
SYSTEM = "You are a careful assistant of the harbour office. Answer briefly and in plain words. " * 12
WORDS = "tide rope lamp quay crane ferry gull buoy chart pilot storm anchor cargo deck mast crew port shore".split()


def text(seed: int, count: int = 150) -> str:
    """Words that no other seed begins with."""
    return " ".join([f"case-{seed}", *(WORDS[(seed * 7 + step * step) % len(WORDS)] for step in range(count))])


@dataclass
class Talk:
    """One conversation in one API's form, and how the API says what was cached."""

    number: int
    stream: bool
    turns: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    prompt: str = ""
    ids: list[int] = field(default_factory=list)

    def say(self) -> str:
        self.turns += 1
        return text(self.number * 100 + self.turns)


class ChatTalk(Talk):
    path = CHAT

    def ask(self) -> dict[str, Any]:
        if not self.history:
            self.history.append({"role": "system", "content": SYSTEM})
        self.history.append({"role": "user", "content": self.say()})
        options = {"stream_options": {"include_usage": True}} if self.stream else {}
        return {"messages": self.history, "stream": self.stream} | options

    def take(self, answer: Answer) -> tuple[int, int]:
        if self.stream:
            events = [event for event in answer.events() if event != "[DONE]"]
            said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"])
            usage = events[-1]["usage"]
        else:
            said, usage = answer.json()["choices"][0]["message"]["content"], answer.json()["usage"]
        self.history.append({"role": "assistant", "content": said})
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class CompletionTalk(Talk):
    path = "/v1/completions"

    def ask(self) -> dict[str, Any]:
        self.prompt += (SYSTEM if not self.prompt else "") + "\nUser: " + self.say() + "\nAnswer:"
        return {"prompt": self.prompt, "max_tokens": 60}

    def take(self, answer: Answer) -> tuple[int, int]:
        usage = answer.json()["usage"]
        self.prompt += answer.json()["choices"][0]["text"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class TokenIdTalk(Talk):
    path = "/v1/completions"

    def ask(self) -> dict[str, Any]:
        if not self.ids:
            self.ids += range(1, 500)
        turn = self.turns = self.turns + 1
        self.ids += [(self.number * 10_007 + turn * 101 + step * step) % 50_000 for step in range(211)]
        return {"prompt": self.ids, "max_tokens": 40, "return_token_ids": True}

    def take(self, answer: Answer) -> tuple[int, int]:
        usage, choice = answer.json()["usage"], answer.json()["choices"][0]
        self.ids += choice["token_ids"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class ResponsesTalk(Talk):
    path = "/v1/responses"

    def ask(self) -> dict[str, Any]:
        self.history.append({"role": "user", "content": self.say()})
        return {"instructions": SYSTEM, "input": self.history, "store": False, "stream": self.stream}

    def take(self, answer: Answer) -> tuple[int, int]:
        record = answer.events()[-1]["response"] if self.stream else answer.json()
        self.history += record["output"]
        usage = record["usage"]
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


class MessagesTalk(Talk):
    path = "/v1/messages"

    def ask(self) -> dict[str, Any]:
        self.history.append({"role": "user", "content": self.say()})
        return {"system": SYSTEM, "messages": self.history, "max_tokens": 400, "stream": self.stream}

    def take(self, answer: Answer) -> tuple[int, int]:
        if self.stream:
            events = answer.events()
            said = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
            usage = next(e["usage"] for e in events if e["type"] == "message_delta")
        else:
            said, usage = answer.json()["content"][0]["text"], answer.json()["usage"]
        self.history.append({"role": "assistant", "content": said})
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached + usage.get("cache_creation_input_tokens", 0), cached


TALKS: dict[str, Callable[[int], Talk]] = {
    "chat": lambda number: ChatTalk(number, stream=False),
    "chat-stream": lambda number: ChatTalk(number, stream=True),
    "completions": lambda number: CompletionTalk(number, stream=False),
    "token-ids": lambda number: TokenIdTalk(number, stream=False),
    "responses": lambda number: ResponsesTalk(number, stream=False),
    "responses-stream": lambda number: ResponsesTalk(number, stream=True),
    "messages": lambda number: MessagesTalk(number, stream=False),
    "messages-stream": lambda number: MessagesTalk(number, stream=True),
}


async def fleet_of(stage: Stage, count: int = 4, **options: Any) -> tuple[Router, list[SimReplica]]:
    replicas = await stage.replicas(count, **options)
    router = await stage.router(*replicas, watched=True)
    await router.until(lambda: all(router.books(replica).report.kv_tokens for replica in replicas))
    return router, replicas


def close(predicted: int, reported: int) -> bool:
    return abs(predicted - reported) <= max(BLOCK_TOKENS, 0.05 * reported)


@pytest.mark.parametrize("kind", TALKS)
async def test_every_follow_up_lands_warm_and_what_it_will_find_is_known_before(stage: Stage, kind: str) -> None:
    """Eight conversations of five turns, interleaved: predicted and reported cached tokens differ by a block at most."""
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


async def test_all_tokens_that_a_fleet_as_one_cache_would_hit_are_hit(stage: Stage) -> None:
    router, replicas = await fleet_of(stage)
    client = await stage.client(router)
    talks = [ChatTalk(number, stream=False) for number in range(12)]
    asked = hits = history = 0
    for turn in range(4):
        for talk in talks:
            prompt, cached = talk.take(await client.ask(request(talk.path, {"model": "sim-model"} | talk.ask())))
            asked, hits = asked + prompt, hits + cached
            history += prompt if turn < 3 else 0
    pooled = history + (len(talks) - 1) * len(SYSTEM) // 5
    assert hits >= 0.95 * min(pooled, asked * 0.98) * 0.95
    tokens = [replica.engine.stats.prefix_queries_tokens - replica.engine.stats.prefix_hits_tokens for replica in replicas]
    assert max(tokens) <= 1.3 * sum(tokens) / len(tokens)


# Spreading


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


# Sessions


async def test_a_session_header_wins_over_the_prefix(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    one = await client.ask(chat(text(1), headers=[("x-session-id", "one")]))
    two = await client.ask(chat(text(2), headers=[("x-session-id", "two")]))
    assert one.replica != two.replica
    crossed = await client.ask(chat(text(1), headers=[("x-session-id", "two")]))
    assert (crossed.replica, crossed.reason) == (two.replica, "session")


async def test_session_1_is_not_session_12(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    names = ["session-1", "session-12", "session-", "SESSION-1", "session-1 2"]
    homes = {name: (await client.ask(chat(headers=[("x-session-id", name)]))).replica for name in names}
    assert len(set(homes.values())) == 4
    for name in reversed(names):
        answer = await client.ask(chat(headers=[("x-session-id", name)]))
        assert (answer.replica, answer.reason) == (homes[name], "session")


@pytest.mark.parametrize(
    "hint",
    [
        {"headers": [("x-session-id", "s")]},
        {"session_id": "s"},
        {"prompt_cache_key": "s"},
        {"conversation": "s"},
        {"conversation": {"id": "s"}},
    ],
    ids=["header", "session_id", "prompt_cache_key", "conversation", "conversation-object"],
)
async def test_every_kind_of_session_hint_keeps_keyless_requests_at_home(stage: Stage, hint: dict[str, Any]) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    first = await client.ask(chat("a", **hint))
    for number in range(6):
        await client.ask(chat(f"somebody else {number}"))
        answer = await client.ask(chat(f"b{number}", **hint))
        assert (answer.replica, answer.reason) == (first.replica, "session")


async def test_session_headers_are_configurable_and_the_first_present_one_counts(stage: Stage) -> None:
    replicas = await stage.replicas(4)
    router = await stage.router(*replicas, session_header=("x-conversation", "x-user"))
    client = await stage.client(router)
    first = await client.ask(chat(headers=[("x-user", "u"), ("X-Conversation", "c")]))
    for number in range(4):
        other = await client.ask(chat(headers=[("x-session-id", "c"), ("x-other", str(number))]))
        assert other.reason == "keyless"
        answer = await client.ask(chat(headers=[("x-conversation", "c"), ("x-user", f"u{number}")]))
        assert (answer.replica, answer.reason) == (first.replica, "session")


async def test_sessions_reach_requests_that_are_not_read(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    kind = [("content-type", "multipart/form-data; boundary=x"), ("x-session-id", "s")]
    first = await client.ask(request("/v1/audio/transcriptions", b"--x--", headers=kind))
    for _ in range(4):
        await client.ask(chat())
        answer = await client.ask(request("/v1/audio/transcriptions", b"--x--", headers=kind))
        assert (answer.replica, answer.reason) == (first.replica, "session")
