"""The whole /metrics page of a router that has everything on: that it can be read, and how things are named."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from router.adapters.metrics.turns import LOSING
from router.app.house import remove_replica
from router.sim.faults import Fault, FaultKind
from tests.adapters.tokenizer.tiny import tiny_tokenizer, write_model
from tests.contract.test_docs_metrics import documented
from tests.redis_server import running_redis
from tests.rig.client import chat
from tests.rig.collector import Collector
from tests.rig.running import Router
from tests.rig.stage import Stage

STORY = "Once upon a time there was a router that knew where everybody had been. " * 40

KEY = "first-key"

UNITS = ("seconds", "bytes", "tokens", "ratio", "blocks")
"""A name that has one of these has it at its end, where Prometheus' users look for it."""

NO_BASE_UNITS = {"ms", "milliseconds", "us", "microseconds", "minutes", "kb", "kib", "mb", "mib", "percent"}

CLOSED = {
    "cache": {"warm", "cold"},
    "priority": {"interactive", "batch"},
    "phase": {"overhead", "queue", "retry", "connect", "prefill", "decode", "total"},
    "prompt_tokens": {"256", "1024", "4096", "16384", "65536", "more"},
    "returned": {"in-time", "too-late"},
    "agrees": {"yes", "no"},
    "outcome": {"hit", "miss"},
}
"""Labels whose values are few, whatever comes."""


OTHERS = {
    "replica", "model", "status", "client", "reason", "source", "kind", "code", "state", "result", "what", "cause",
    "version", "le",
}  # fmt: skip
"""Labels whose values are listed elsewhere, or that have a limit."""

RATES = {"warmroute_prefill_tokens_per_second"}


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@pytest.fixture
async def router(stage: Stage, redis_url: str, tmp_path: Path) -> AsyncIterator[Router]:
    async with Collector() as collector:
        yield await everything(stage, redis_url, collector.url, write_model(tmp_path / "model", tiny_tokenizer()))


async def everything(stage: Stage, redis_url: str, otlp_url: str, model: Path) -> Router:
    """A router after requests of all kinds: streams and not, warm and cold, refused, failed."""
    replicas = await stage.replicas(2)
    sharing = {"redis": redis_url, "redis_deadline_ms": 500}
    router = await stage.router(
        *replicas,
        watched=True,
        warm_up_tokens=10_000,
        api_keys=KEY,
        otlp_endpoint=otlp_url,
        tokenizer=str(model),
        kv_events="auto",
        touch=True,
        **sharing,
    )
    await router.until(lambda: all(router.books(replica).report.kv_tokens for replica in replicas))
    client, key = await stage.client(router), [("authorization", f"Bearer {KEY}")]
    system = {"role": "system", "content": STORY}
    for number in range(24):
        messages = [system, {"role": "user", "content": f"{number // 2} {STORY}"}]
        sent = chat(messages=messages, headers=key, stream=number % 4 > 0, priority=number % 3)
        assert (await client.ask(sent)).status == 200
    assert (await client.ask(chat(model="nope", headers=key))).status == 404
    replicas[0].faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    while not router.records.failed:
        await client.ask(chat(f"{len(router.records.finished)} {STORY}", headers=key))
    await router.idle()
    assert router.house.warming is not None
    router.house.fleet.forget_residency(router.id_of(replicas[1]))
    await router.house.warming.warm_up(router.id_of(replicas[1]))
    return router


async def families_of(router: Router) -> list[Metric]:
    answer = await (await router.admin()).get("/metrics")
    assert answer.status_code == 200
    return list(text_string_to_metric_families(answer.text))


def full_name(family: Metric) -> str:
    return family.name + ("_total" if family.type == "counter" else "")


async def test_the_page_has_what_is_documented_and_each_but_once(router: Router) -> None:
    families = await families_of(router)
    own = [full_name(family) for family in families if not family.name.startswith("process_")]
    assert sorted(own) == sorted(documented())
    silent = {family.name for family in families if not family.samples}
    nothing = {"warmroute_redis_dropped", "warmroute_eviction_age_seconds", "warmroute_touches"}
    assert silent <= nothing, "there was nothing of these"
    series = Counter((sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples)
    assert [name for name, count in series.items() if count > 1] == []


async def test_names_follow_prometheus_rules(router: Router) -> None:
    for family in await families_of(router):
        name, words = family.name, family.name.split("_")
        assert re.fullmatch(r"(warmroute|process)(_[a-z0-9]+)+", name)
        assert family.documentation.endswith("."), f"{name} has no help"
        assert family.type in ("counter", "gauge", "histogram"), name
        assert words[-1] not in ("total", "count", "sum", "bucket"), f"{name}: that is for samples of other kinds"
        assert not NO_BASE_UNITS & set(words), f"{name} is not in base units"
        if family.type == "histogram":
            assert words[-1] == "seconds", name
        for unit in UNITS:
            if unit in words and name not in RATES:
                assert words[-1] == unit, f"{name}: its unit is not at its end"
        suffixes = {sample.name.removeprefix(name) for sample in family.samples}
        expected = {"counter": {"_total"}, "gauge": {""}, "histogram": {"_bucket", "_count", "_sum"}}[family.type]
        assert suffixes <= expected, name


async def test_labels_have_few_values(router: Router) -> None:
    replicas = {"", *router.house.endpoints}
    for family in await families_of(router):
        for sample in family.samples:
            labels = sample.labels
            assert labels.get("replica", "") in replicas, sample
            assert all(value in CLOSED[label] for label, value in labels.items() if label in CLOSED), sample
            assert labels.get("cause", "spread") in set(LOSING)
            assert set(labels) <= {*CLOSED, *OTHERS}, sample


async def test_a_replica_that_is_removed_leaves_the_page(router: Router) -> None:
    gone, stays = list(router.house.endpoints)
    remove_replica(router.house, gone)
    labels = [sample.labels for family in await families_of(router) for sample in family.samples]
    assert {label["replica"] for label in labels if "replica" in label} == {"", stays}
