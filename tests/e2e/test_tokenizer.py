"""A router with a tokenizer: a prompt's length is what the tokenizer says, and nobody waits for it in vain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.adapters.tokenizer.model_files import load_model
from router.adapters.tokenizer.models import tokenised
from router.adapters.tokenizer.trouble import TokenizerFileError
from router.app.settings.model import Settings
from router.app.wiring import build
from tests.adapters.tokenizer.tiny import CHATML, tiny_tokenizer, write_model
from tests.redis_server import running_redis
from tests.rig.client import CHAT, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import text

PATIENT_MS = 10_000.0
SLOW = "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}" + CHATML
"""A template that takes its thread a tenth of a second, while a client leaves within a millisecond."""


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", tiny_tokenizer())


def body(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"model": "sim-model", "messages": messages, "max_tokens": 5} | fields


def tokens_of(model: Path, fields: dict[str, Any]) -> int:
    return len(tokenised(load_model(model), None, "chat", json.dumps(fields).encode()))


async def results(router: Router) -> dict[str, float]:
    answer = await (await router.admin()).get("/metrics")
    families = text_string_to_metric_families(answer.text)
    found = next(family for family in families if family.name == "warmroute_tokenizer_requests")
    return {sample.labels["result"]: sample.value for sample in found.samples if sample.value}


async def test_the_length_of_a_prompt_is_exact_on_its_first_turn(stage: Stage, model: Path) -> None:
    router = await stage.router(*await stage.replicas(2), tokenizer=str(model), tokenizer_deadline_ms=PATIENT_MS)
    fields = body([{"role": "user", "content": text(1)}])
    assert (await stage.ask(router, request(CHAT, fields))).status == 200
    await router.idle()
    (record,) = router.house.decisions.latest(1)
    assert record.decision is not None
    assert record.decision.prompt_tokens == tokens_of(model, fields)
    assert await results(router) == {"in-time": 1}


async def test_explain_asks_the_tokenizer_too(stage: Stage, model: Path) -> None:
    router = await stage.router(await stage.replica(), tokenizer=str(model), tokenizer_deadline_ms=PATIENT_MS)
    fields = body([{"role": "user", "content": text(1)}])
    answer = await (await router.admin()).post("/api/explain", json=fields)
    assert answer.json()["prompt_tokens"] == tokens_of(model, fields)


async def test_engines_with_another_tokenizer_are_noticed(stage: Stage, model: Path) -> None:
    """As the simulated ones are: after eight answers prompts go by their bytes again."""
    router = await stage.router(await stage.replica(), tokenizer=str(model), tokenizer_deadline_ms=PATIENT_MS)
    for number in range(10):
        await stage.ask(router, request(CHAT, body([{"role": "user", "content": text(number)}])))
        await router.idle()
    assert await results(router) == {"in-time": 8, "distrusted": 2}


async def test_a_client_that_leaves_while_its_prompt_is_tokenised(stage: Stage, tmp_path: Path) -> None:
    model = write_model(tmp_path / "slow", tiny_tokenizer(), SLOW)
    replica = await stage.replica()
    router = await stage.router(replica, tokenizer=str(model), tokenizer_deadline_ms=PATIENT_MS)
    client = await stage.client(router)
    client.send(request(CHAT, body([{"role": "user", "content": text(1)}])))
    tokenizer = router.house.tokenizer
    assert tokenizer is not None
    await router.until(lambda: tokenizer.waiting == 1)
    client.leave()
    await router.until(lambda: bool(router.records.finished))
    await router.until(lambda: tokenizer.waiting == 0)
    assert router.records.finished[-1].status == 499
    assert not replica.requests, "what is answered to nobody is not routed"
    assert router.in_flight == {}


async def test_a_router_stops_while_prompts_are_tokenised(stage: Stage, tmp_path: Path) -> None:
    model = write_model(tmp_path / "slow", tiny_tokenizer(), SLOW)
    router = await stage.router(await stage.replica(), tokenizer=str(model), tokenizer_deadline_ms=PATIENT_MS)
    for number in range(5):
        client = await stage.client(router)
        client.send(request(CHAT, body([{"role": "user", "content": text(number)}])))
    tokenizer = router.house.tokenizer
    assert tokenizer is not None
    await router.until(lambda: tokenizer.waiting == 5)


async def test_store_and_tokenizer_are_asked_at_the_same_time(stage: Stage, model: Path, redis_url: str) -> None:
    """The second router learns the home from Redis, and the length from its tokenizer."""
    replicas = await stage.replicas(2)
    settings: dict[str, Any] = {"redis": redis_url, "tokenizer": str(model), "tokenizer_deadline_ms": PATIENT_MS}
    one, other = [await stage.router(*replicas, redis_deadline_ms=500, **settings) for _ in range(2)]
    messages = [{"role": "user", "content": text(1)}]
    first = await stage.ask(one, request(CHAT, body(messages)))
    await one.idle()
    said = first.json()["choices"][0]["message"]
    messages += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": text(2)}]
    second = await stage.ask(other, request(CHAT, body(messages)))
    await other.idle()
    assert second.replica == first.replica
    record = other.records.finished[-1]
    assert record.decision is not None
    assert record.decision.prompt_tokens == tokens_of(model, body(messages))


def test_files_that_are_no_tokenizer_s_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(TokenizerFileError, match="there is no"):
        build(Settings(tokenizer=(str(tmp_path),)))
