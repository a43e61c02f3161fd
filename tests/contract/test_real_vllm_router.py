"""Chats through the router to two real vLLM servers: the next turn is warm, and what was predicted is what came.

Not run by default: see test_real_vllm_cache.py.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from router.app.demo.processes import router
from tests.contract.vllm_server import MODEL_NAME, VllmCache, make_tiny_model, serving_vllm, vllm_python
from tests.redis_server import running_redis

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

CACHE = VllmCache()
WORDS = "sea wind harbour lantern rope gull tide anchor mast sail storm island map star"


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    python, work = vllm_python(), tmp_path_factory.mktemp("vllm")
    model = make_tiny_model(python, work / "model")
    details = "--enable-prompt-tokens-details"
    with (
        serving_vllm(python, model, work / "a", CACHE, details) as first,
        serving_vllm(python, model, work / "b", CACHE, details) as second,
    ):
        yield [first, second]


@pytest.fixture
def client(replicas: list[str], tmp_path: Path) -> Iterator[httpx.Client]:
    with router(replicas, ()) as running, httpx.Client(base_url=running.clients, timeout=60) as client:
        yield client


def hits(replica: str) -> float:
    lines = httpx.get(f"{replica}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:prefix_cache_hits_total"))


def say(client: httpx.Client, messages: list[dict[str, str]], stream: bool) -> tuple[httpx.Headers, dict, str]:
    """Return headers, usage and the answer's text."""
    body = {"model": MODEL_NAME, "messages": messages, "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    if not stream:
        answer = client.post("/v1/chat/completions", json=body)
        answer.raise_for_status()
        return answer.headers, answer.json()["usage"], answer.json()["choices"][0]["message"]["content"]
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = client.post("/v1/chat/completions", json=body)
    answer.raise_for_status()
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    text = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
    return answer.headers, events[-1]["usage"], text


@pytest.mark.parametrize("stream", [True, False])
def test_turn_two_hits_turn_one_in_whole_blocks_on_the_warm_replica(
    client: httpx.Client, replicas: list[str], stream: bool
) -> None:
    messages = [{"role": "user", "content": f"{stream} " + f"{WORDS} " * 60}]
    first_headers, first_usage, text = say(client, messages, stream)
    before = {replica: hits(replica) for replica in replicas}
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
    headers, usage, _ = say(client, messages, stream)
    assert headers["x-warmroute-decision"] == "warm"
    assert headers["x-warmroute-replica"] == first_headers["x-warmroute-replica"]
    grown = sorted(hits(replica) - before[replica] for replica in replicas)
    least = first_usage["prompt_tokens"] // CACHE.block_tokens * CACHE.block_tokens
    assert grown[0] == 0
    assert grown[1] >= least
    assert usage["prompt_tokens_details"]["cached_tokens"] == grown[1]


def test_predicted_is_reported_within_a_block_or_five_per_cent(client: httpx.Client) -> None:
    differences = []
    for chat in range(6):
        messages = [{"role": "system", "content": "You know the sea. " * 20}]
        for turn in range(5):
            messages.append({"role": "user", "content": f"chat {chat} turn {turn}: " + f"{WORDS} " * (3 + 4 * turn)})
            headers, usage, text = say(client, messages, stream=turn % 2 == 0)
            messages.append({"role": "assistant", "content": text})
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            predicted = int(headers["x-warmroute-matched-tokens"])
            if turn >= 1:
                assert headers["x-warmroute-decision"] == "warm"
                allowed = max(CACHE.block_tokens, 0.05 * usage["prompt_tokens"])
                differences.append((abs(predicted - cached) <= allowed, predicted, cached, usage["prompt_tokens"]))
    # The reuse of answers is learnt from the first few turns: random text does not tokenise as it was generated.
    assert all(ok for ok, *_ in differences[8:]), differences


def test_turn_two_through_another_router_hits_turn_one(replicas: list[str]) -> None:
    """Turn by turn through two routers on one Redis, and through a third one that has just started."""
    with running_redis() as url, contextlib.ExitStack() as stack:
        ports = ("--port", "0", "--admin-port", "0")
        sharing = (*ports, "--redis", url, "--redis-secret", "correct horse", "--redis-deadline-ms", "200")

        def start() -> httpx.Client:
            running = stack.enter_context(router(replicas, sharing))
            return stack.enter_context(httpx.Client(base_url=running.clients, timeout=60))

        clients = [start(), start()]
        messages = [{"role": "user", "content": "Shared: " + f"{WORDS} " * 60}]
        homes = set()
        for turn in range(6):
            if turn == 4:
                clients = [start()]
            before = {replica: hits(replica) for replica in replicas}
            headers, usage, text = say(clients[turn % len(clients)], messages, stream=turn % 2 == 0)
            homes.add(headers["x-warmroute-replica"])
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"And then, {turn}?"}]
            if turn:
                assert headers["x-warmroute-decision"] == "warm", turn
                grown = sorted(hits(replica) - before[replica] for replica in replicas)
                assert grown == [0, usage["prompt_tokens_details"]["cached_tokens"]]
                assert grown[1] > 0.5 * usage["prompt_tokens"]
        assert len(homes) == 1
