"""Warming a replica up: what is sent, how much of it, and what the fleet knows afterwards."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from router.adapters.warm_up_metrics import WarmUpCounts
from router.app.roster.warming import Warming
from router.core.health import State
from router.proxy.openai import read_request
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import CHAT, DEADLINE_S, chat
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.tasks import Tasks


def system(number: int) -> str:
    return f"You are assistant {number}, and careful. " * 60


def body(number: int, **fields: Any) -> bytes:
    messages = [{"role": "system", "content": system(number)}, {"role": "user", "content": "my own words"}]
    return json.dumps({"model": "sim-model", "messages": messages} | fields).encode()


def show(warming: Warming, number: int, times: int, **fields: Any) -> None:
    data = body(number, **fields)
    for _ in range(times):
        warming.opening_seen(read_request(CHAT, data, None), data)


def warming_of(router: Router, tokens: int = 100_000) -> Warming:
    """A router's warming, beside it. Every replica is ready."""
    house = router.house
    for replica in house.fleet:
        replica.health.probed(house.plane.clock())
        assert replica.health.state is State.READY
    return Warming(house.plane, house.client, house.endpoints, tokens, WarmUpCounts())


def systems(replica: SimReplica) -> list[str]:
    """The system prompts that a replica was sent."""
    return [json.loads(arrival.body)["messages"][0]["content"] for arrival in replica.requests]


async def test_a_cold_replica_is_sent_the_hottest_prefixes_first(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router)
    for number, times in ((1, 3), (2, 9), (3, 5), (4, 1)):
        show(warming, number, times)
    await warming.warm_up(router.id_of(replica))
    assert systems(replica) == [system(2), system(3), system(1)], "4 was seen once"
    assert all(b"my own words" not in arrival.body for arrival in replica.requests)


async def test_the_next_session_finds_its_prefix_there(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router)
    show(warming, 1, 2)
    await warming.warm_up(router.id_of(replica))
    messages = json.loads(body(1))["messages"]
    answer = await stage.ask(router, chat(messages=messages))
    assert answer.reason == "shared"
    cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 400
    assert 400 < answer.matched_tokens <= cached


async def test_what_it_holds_already_is_not_sent(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router)
    show(warming, 1, 2)
    await warming.warm_up(router.id_of(replica))
    await warming.warm_up(router.id_of(replica))
    assert len(replica.requests) == 1


async def test_no_more_is_sent_than_the_budget_allows(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router, tokens=1_300)
    for number in range(8):
        show(warming, number, 4)
    await warming.warm_up(router.id_of(replica))
    told = warming.describe(router.id_of(replica))
    assert told is not None
    assert 600 < told["tokens"] <= 1_300
    assert replica.engine.stats.prompt_tokens == told["tokens"]
    assert told["requests"] == {"done": len(replica.requests)}
    assert told["budget_tokens"] == 1_300
    assert told["running"] is False


async def test_models_that_it_does_not_serve_are_left_out(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    router.books(replica).models = frozenset({"sim-model"})
    warming = warming_of(router)
    show(warming, 1, 9, model="another")
    show(warming, 2, 2)
    await warming.warm_up(router.id_of(replica))
    assert systems(replica) == [system(2)]


async def test_a_refusal_ends_one_prefix_and_not_the_others(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.STATUS, status=400, count=1))
    router = await stage.router(replica)
    warming = warming_of(router)
    show(warming, 1, 9)
    show(warming, 2, 2)
    await warming.warm_up(router.id_of(replica))
    told = warming.describe(router.id_of(replica))
    assert told is not None
    assert told["requests"] == {"refused": 1, "done": 1}
    assert router.books(replica).mirror.match(_prompt(1)) == 0
    assert router.books(replica).mirror.match(_prompt(2)) > 0


def _prompt(number: int) -> list[int]:
    prompt = read_request(CHAT, body(number), None).prompt
    assert prompt is not None
    return prompt.hashes


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (Fault(FaultKind.STATUS, status=503), "busy"),
        (Fault(FaultKind.STATUS, status=429), "busy"),
        (Fault(FaultKind.STATUS, status=500), "failed"),
        (Fault(FaultKind.RESET_BEFORE_FIRST_BYTE), "failed"),
        (Fault(FaultKind.REFUSE), "failed"),
    ],
    ids=lambda value: str(getattr(value, "status", value)),
)
async def test_a_replica_that_is_busy_or_fails_is_left_alone(stage: Stage, fault: Fault, result: str) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router)
    for number in range(3):
        show(warming, number, 4)
    replica.faults.set(fault)
    await warming.warm_up(router.id_of(replica))
    told = warming.describe(router.id_of(replica))
    assert told is not None
    assert told["requests"] == {result: 1}
    assert not router.in_flight


async def test_one_that_leaves_meanwhile_is_counted_out_and_forgotten(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    replica.state.freeze()
    router = await stage.router(replica)
    warming = warming_of(router)
    show(warming, 1, 2)
    async with Tasks() as tasks:
        tasks.spawn(warming.warm_up(router.id_of(replica)))
        await replica.wait_for(lambda: replica.engine.waiting + replica.engine.running == 1, DEADLINE_S)
        assert router.in_flight, "others should see that it has work"
    await router.idle()
    await replica.wait_for(lambda: replica.engine.waiting + replica.engine.running == 0, DEADLINE_S)


async def test_it_does_not_count_as_the_replicas_share_of_the_work(stage: Stage) -> None:
    """Sessions are spread by recent work: having been warmed must draw them, not keep them off."""
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router)
    show(warming, 1, 2)
    await warming.warm_up(router.id_of(replica))
    assert router.books(replica).recent.work_s(router.house.plane.clock()) == pytest.approx(0.0)


async def test_a_rank_is_warmed_for_itself(stage: Stage) -> None:
    replica = await stage.replica(data_parallel=2)
    router = await stage.router(f"{replica.url}?ranks=2")
    warming = warming_of(router)
    show(warming, 1, 2)
    second = next(name for name, endpoint in router.house.endpoints.items() if endpoint.rank == 1)
    await warming.warm_up(second)
    assert [rank.driver.engine.stats.prompt_tokens > 0 for rank in replica.state.ranks.all] == [False, True]


async def test_short_prefixes_are_not_worth_a_request(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a long story " * 200}]
    show(warming, 1, 9, messages=messages)
    await warming.warm_up(router.id_of(replica))
    assert not replica.requests
    assert warming.describe(router.id_of(replica)) is None


async def test_the_engines_key_is_sent_along(stage: Stage) -> None:
    replica = await stage.replica(api_key="fleet-key")
    router = await stage.router(replica, engine_api_key="fleet-key")
    warming = warming_of(router)
    show(warming, 1, 2)
    await warming.warm_up(router.id_of(replica))
    told = warming.describe(router.id_of(replica))
    assert told is not None
    assert told["requests"] == {"done": 1}


async def test_it_is_counted_for_prometheus_until_the_replica_leaves(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    warming = warming_of(router)
    show(warming, 1, 2)
    name = router.id_of(replica)
    await warming.warm_up(name)
    registry = CollectorRegistry()
    registry.register(warming.counts)
    text = generate_latest(registry).decode()
    assert f'warmroute_warm_up_requests_total{{replica="{name}",result="done"}} 1.0' in text
    tokens = replica.engine.stats.prompt_tokens
    assert f'warmroute_warm_up_tokens_total{{replica="{name}"}} {float(tokens)}' in text
    warming.forget(name)
    assert name not in generate_latest(registry).decode()
    assert warming.describe(name) is None
