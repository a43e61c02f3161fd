"""Three real vLLM servers with small caches and KV cache events: what is predicted is what is reported.

Not run by default: see test_real_vllm_cache.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from router.app.demo.processes import router
from tests.contract.vllm_server import MODEL_NAME, VllmCache, make_tiny_model, serving_vllm, vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1_200)]

CACHE = VllmCache(blocks=140, max_model_len=4_096)
"""139 blocks of 32 tokens: a tenth of what the chats of a test have."""

SERVERS = 3
REQUESTS = 300
LIVE_S = 30.0
WORDS = (
    "sea", "wind", "harbour", "lantern", "rope", "gull", "tide", "anchor", "mast", "sail", "storm", "island", "map",
    "star",
)  # fmt: skip
SYSTEMS = ["", *(" ".join(WORDS[start:] * size) for start, size in ((1, 6), (2, 20), (3, 30)))]


def events_config(name: str) -> str:
    """Return a server's --kv-events-config: on free ports, since vLLM binds where it is given a wildcard."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        events, replay = (f"tcp://*:{one.getsockname()[1]}" for one in found)
    config = {"enable_kv_cache_events": True, "endpoint": events, "replay_endpoint": replay, "topic": f"kv@{name}@tiny"}
    return json.dumps(config)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(vllm_python(), tmp_path_factory.mktemp("vllm-model") / "model")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[list[str]]:
    python, work = vllm_python(), tmp_path_factory.mktemp("vllm")
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                serving_vllm(python, model, work / str(number), CACHE, "--kv-events-config", events_config(str(number)))
            )
            for number in range(SERVERS)
        ]


def wait_until_live(admin: str) -> None:
    """Wait until the router knows all servers by their events."""
    deadline_s = time.monotonic() + LIVE_S
    while time.monotonic() < deadline_s:
        page = httpx.get(f"{admin}/metrics").text
        if len(re.findall(r"^warmroute_kv_events_live\{.*\} 1\.0$", page, re.MULTILINE)) == SERVERS:
            return
        time.sleep(0.2)
    pytest.fail("the servers' events are not followed")


@dataclass
class Seen:
    """What was predicted and reported, request by request."""

    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def exact_ratio(self) -> float:
        return sum(predicted == reported for predicted, reported in self.pairs) / len(self.pairs)

    def within_ratio(self, tokens: int) -> float:
        return sum(abs(predicted - reported) <= tokens for predicted, reported in self.pairs) / len(self.pairs)


class Chats:
    """A seeded crowd of chats that send back what they were answered."""

    def __init__(self, client: httpx.Client, seed: int) -> None:
        self.client = client
        self.chance = Random(seed)
        self.live = [self.fresh() for _ in range(14)]
        self.follow_ups, self.all = Seen(), Seen()

    def fresh(self) -> list[dict[str, Any]]:
        system = self.chance.choice(SYSTEMS)
        return [{"role": "system", "content": system}] if system else []

    def words(self, count: int) -> str:
        return " ".join(self.chance.choice(WORDS) for _ in range(count))

    def turn(self) -> None:
        number = self.chance.randrange(len(self.live))
        chat = self.live[number]
        is_follow_up = any(message["role"] == "assistant" for message in chat)
        chat.append({"role": "user", "content": self.words(self.chance.randint(20, 250))})
        body = {
            "model": MODEL_NAME, "messages": chat, "temperature": 0, "max_tokens": self.chance.randint(1, 80),
            "ignore_eos": True,
        }  # fmt: skip
        answer = self.client.post("/v1/chat/completions", json=body)
        answer.raise_for_status()
        told = answer.json()
        chat.append({"role": "assistant", "content": told["choices"][0]["message"]["content"]})
        details = told["usage"]["prompt_tokens_details"]
        pair = int(answer.headers["x-warmroute-matched-tokens"]), details["cached_tokens"]
        self.all.pairs.append(pair)
        if is_follow_up:
            self.follow_ups.pairs.append(pair)
        if told["usage"]["prompt_tokens"] > 2_500:
            self.live[number] = self.fresh()


def run(servers: list[str], seed: int, *options: str) -> Chats:
    options = ("--kv-events", "auto", "--tokenizer-deadline-ms", "5000", *options)
    with router(servers, options) as running, httpx.Client(base_url=running.clients, timeout=120) as client:
        wait_until_live(running.admin)
        chats = Chats(client, seed)
        for _ in range(REQUESTS):
            chats.turn()
        return chats


def test_with_a_tokenizer_99_of_100_requests_are_predicted_exactly(servers: list[str], model: Path) -> None:
    chats = run(servers, 1, "--tokenizer", str(model))
    print(f"with a tokenizer: {chats.all.exact_ratio:.4f} of {len(chats.all.pairs)} requests are exact")
    assert sum(reported for _, reported in chats.all.pairs) > 0
    assert chats.all.exact_ratio >= 0.99, [pair for pair in chats.all.pairs if pair[0] != pair[1]]


def test_without_a_tokenizer_follow_ups_are_near(servers: list[str]) -> None:
    """Random weights write what a tokenizer cuts otherwise when it comes back, so answers are not all found again."""
    chats = run(servers, 2)
    seen = chats.follow_ups
    print(f"without: {seen.exact_ratio:.4f} of {len(seen.pairs)} follow-ups are exact, {seen.within_ratio(32):.4f} "
          f"within a block; of all requests {chats.all.exact_ratio:.4f}")  # fmt: skip
    assert seen.within_ratio(CACHE.block_tokens) >= 0.85
