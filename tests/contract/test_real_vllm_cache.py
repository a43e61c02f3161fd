"""The simulated engine's prefix cache against a real vLLM's: equal `cached_tokens`, request by request.

Not run by default: `pytest -m vllm` with VLLM_PYTHON set to the python of an environment with vLLM.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.sim.engine import Engine, EngineConfig, Event, Finished, SimRequest
from tests.contract.vllm_server import MODEL_NAME, VllmCache, make_tiny_model, serving_vllm, vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

CACHE = VllmCache()
TEXT_IDS = (300, 4_000)
"""Ordinary tokens of the tiny model's vocabulary; the special ones are below."""


@dataclass
class Both:
    """A real server and a simulated engine of the same size, asked the same in the same order."""

    client: httpx.Client
    engine: Engine = field(
        default_factory=lambda: Engine(
            EngineConfig(kv_tokens=CACHE.blocks * CACHE.block_tokens, block_tokens=CACHE.block_tokens)
        )
    )
    asked: int = 0

    def ask(self, prompt: list[int], output_tokens: int, salt: int = 0) -> tuple[int, int, list[int]]:
        """Return cached tokens of the real and of the simulated engine, and the real answer."""
        body = {
            "model": MODEL_NAME, "prompt": prompt, "max_tokens": output_tokens, "ignore_eos": True, "temperature": 0,
            "return_token_ids": True,
        }  # fmt: skip
        if salt:
            body["cache_salt"] = f"tenant-{salt}"
        response = self.client.post("/v1/completions", json=body)
        response.raise_for_status()
        answer = response.json()
        output: list[int] = answer["choices"][0]["token_ids"]
        assert len(output) == output_tokens
        self.asked += 1
        simulated = self._simulate(SimRequest(str(self.asked), prompt, output, salt))
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], simulated, output

    def _simulate(self, request: SimRequest) -> int:
        assert self.engine.submit(request, 0.0)
        events: list[Event] = []
        while (at_s := self.engine.next_event_s()) is not None:
            events += self.engine.advance(at_s)
        end = events[-1]
        assert isinstance(end, Finished)
        return end.cached_tokens

    def real_counter(self, name: str) -> float:
        """The value of one of the real server's counters."""
        families = text_string_to_metric_families(self.client.get("/metrics").text)
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = vllm_python()
    work = tmp_path_factory.mktemp("vllm")
    with serving_vllm(python, make_tiny_model(python, work / "model"), work, CACHE) as url:
        yield url


@pytest.fixture
def both(server_url: str) -> Iterator[Both]:
    """Both for one test. What earlier tests left in the real cache is older than all else there and has other salts."""
    with httpx.Client(base_url=server_url, timeout=120) as client:
        yield Both(client)


class Chats:
    """A seeded crowd of growing token-id chats that together need several times the cache."""

    def __init__(self, seed: int, live: int) -> None:
        self.chance = Random(seed)
        self.systems = [self.words(size) for size in (0, 96, 417, 1_024)]
        self.chats = [self.fresh() for _ in range(live)]

    def words(self, count: int) -> list[int]:
        return [self.chance.randint(*TEXT_IDS) for _ in range(count)]

    def fresh(self) -> list[int]:
        return list(self.chance.choice(self.systems))

    def next_prompt(self) -> tuple[int, list[int]]:
        """Return a chat's number and its next prompt: mostly it grows; some repeat, are edited or start anew."""
        number = self.chance.randrange(len(self.chats))
        chat, dice = self.chats[number], self.chance.random()
        if len(chat) > 4_000 or dice < 0.06:
            chat = self.fresh()
        elif dice < 0.16 and chat:
            return number, chat
        elif dice < 0.24 and chat:
            chat = chat[: self.chance.randrange(len(chat))]
        chat = chat + self.words(self.chance.choice([1, 32, self.chance.randint(1, 60), self.chance.randint(60, 700)]))
        if dice > 0.85:
            chat = chat[: len(chat) // CACHE.block_tokens * CACHE.block_tokens] or chat
        self.chats[number] = chat
        return number, chat

    def answered(self, number: int, prompt: list[int], answer: list[int]) -> None:
        self.chats[number] = prompt + answer


@pytest.mark.parametrize("seed", [1, 2])
def test_cached_tokens_are_equal_for_every_request(both: Both, seed: int):
    chats = Chats(seed, live=9)
    differences, hits, prompts = [], 0, 0
    for turn in range(200):
        number, prompt = chats.next_prompt()
        output_tokens = chats.chance.choice([1, 2, 31, 32, 33, chats.chance.randint(1, 90)])
        # Two tenants per run; runs share the server.
        real, simulated, answer = both.ask(prompt, output_tokens, salt=10 * seed + number % 2)
        chats.answered(number, prompt, answer)
        hits, prompts = hits + real, prompts + len(prompt)
        if real != simulated:
            differences.append(f"turn {turn}, chat {number}, {len(prompt)} tokens: real {real}, simulated {simulated}")
    assert differences == []
    assert both.engine.pool.evicted_blocks > 2 * CACHE.blocks, "the cache was not under pressure"
    assert 0.2 < hits / prompts < 0.95


def test_turn_two_raises_the_hit_counter_by_turn_one_in_full_blocks(both: Both):
    chance = Random(3)
    turn_1 = [chance.randint(*TEXT_IDS) for _ in range(2_182)]
    _, _, answer = both.ask(turn_1, 8, salt=3)
    before = both.real_counter("vllm:prefix_cache_hits_total")
    cached, _, _ = both.ask([*turn_1, *answer, *TEXT_IDS], 8, salt=3)
    # A step's counters are written before the next step's tokens are sent.
    both.ask([*TEXT_IDS], 2, salt=4)
    full_blocks_tokens = 2_182 // CACHE.block_tokens * CACHE.block_tokens
    assert both.real_counter("vllm:prefix_cache_hits_total") - before == full_blocks_tokens == cached
    assert both.engine.stats.prefix_hits_tokens == full_blocks_tokens
