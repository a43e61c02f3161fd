"""With --warm-up-tokens a replica that comes in cold is sent the prefixes that most sessions share, ahead of them."""

from __future__ import annotations

import json

import pytest

from router.core.health import State
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import CHAT, Answer, request
from tests.rig.running import Router
from tests.rig.stage import Stage

PROMPTS = [f"You are assistant {number}, and careful. " * 100 for number in range(3)]
"""About 800 tokens each."""


def session(number: int, prompt: str) -> bytes:
    """The first turn of a session of its own."""
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": f"question {number} of my own"}]
    return request(CHAT, {"model": "sim-model", "messages": messages, "max_tokens": 4})


def warm_ups(replica: SimReplica) -> list[str]:
    """The system prompts of the requests that no client sent."""
    sent = [json.loads(arrival.body) for arrival in replica.requests if arrival.path == CHAT and arrival.complete]
    return [body["messages"][0]["content"] for body in sent if body["messages"][1]["content"] == "."]


def cached_tokens(answer: Answer) -> int:
    tokens: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


async def joined_late(stage: Stage, **settings: object) -> tuple[Router, SimReplica, SimReplica]:
    """A router whose second replica comes in after sessions have begun with the prompts."""
    first, late = await stage.replicas(2)
    late.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(first, late, watched=True, health_interval_s=0.1, slow_start_s=0, **settings)
    await router.until(lambda: router.books(late).health.state is State.EJECTED)
    client = await stage.client(router)
    for number in range(12):
        answer = await client.ask(session(number, PROMPTS[number % 3]))
        assert answer.replica == router.id_of(first)
    late.faults.clear()
    return router, first, late


async def test_a_replica_that_joins_is_warmed_and_new_sessions_hit_on_it(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "warmroute.fleet")
    router, _, late = await joined_late(stage, warm_up_tokens=100_000)
    name = router.id_of(late)
    await router.until(lambda: any("is warmed up" in record.getMessage() for record in caplog.records))
    assert sorted(warm_ups(late)) == PROMPTS
    client = await stage.client(router)
    answers = [await client.ask(session(number, PROMPTS[number % 3])) for number in range(100, 112)]
    there = [answer for answer in answers if answer.replica == name]
    assert there, "no new session went to the new replica"
    assert all(cached_tokens(answer) > 600 for answer in answers), "a session began cold"
    assert {answer.reason for answer in there} == {"shared"}
    admin = await router.admin()
    described = {known["id"]: known for known in (await admin.get("/api/fleet")).json()["replicas"]}
    told = described[name]["warm_up"]
    assert told["requests"] == {"done": 3}
    assert told["running"] is False
    metrics = (await admin.get("/metrics")).text
    assert f'warmroute_warm_up_requests_total{{replica="{name}",result="done"}} 3.0' in metrics
    assert f'warmroute_warm_up_tokens_total{{replica="{name}"}} {float(told["tokens"])}' in metrics


async def test_nothing_is_sent_and_no_text_kept_unless_it_is_asked_for(stage: Stage) -> None:
    router, _, late = await joined_late(stage)
    await router.until(lambda: router.books(late).health.state is State.READY)
    client = await stage.client(router)
    for number in range(100, 112):
        await client.ask(session(number, PROMPTS[number % 3]))
    assert not warm_ups(late)
    assert router.house.warming is None
    described = (await (await router.admin()).get("/api/fleet")).json()["replicas"]
    assert {known["warm_up"] for known in described} == {None}


async def test_one_that_restarts_is_warmed_again(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "warmroute.fleet")
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1, warm_up_tokens=100_000)
    client = await stage.client(router)
    await router.until(lambda: bool(router.books(replica).models))
    for number in range(12):
        assert (await client.ask(session(number, PROMPTS[number % 3]))).status == 200
    await router.until(lambda: (router.books(replica).report.prefix_queries_tokens or 0) > 5_000)
    replica.restart_cold()
    await router.until(lambda: sorted(warm_ups(replica)) == PROMPTS)
    await router.idle()
    answer = await stage.ask(router, session(100, PROMPTS[0]))
    assert cached_tokens(answer) > 600


async def test_a_router_that_starts_beside_a_warm_fleet_sends_nothing(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, warm_up_tokens=100_000)
    await router.until(lambda: router.books(replica).health.state is State.READY and bool(router.books(replica).models))
    client = await stage.client(router)
    for number in range(6):
        await client.ask(session(number, PROMPTS[0]))
    pages = sum(arrival.path == "/metrics" for arrival in replica.requests)
    await replica.wait_for(lambda: sum(arrival.path == "/metrics" for arrival in replica.requests) >= pages + 2, 10.0)
    assert not warm_ups(replica)
