"""A turn's history is lost by what happens to replicas: the router says which, and how many tokens that cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from router.core.misses.types import Cause
from router.core.types import EngineReport
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from router.sim.types import EngineConfig
from tests.redis_server import running_redis
from tests.rig.client import CHAT, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import BLOCK_TOKENS, SYSTEM, fleet_of, text
from tests.rig.turns import Conversation, Seen, whole_blocks


async def conversation(stage: Stage, router: Router, name: int = 0) -> Conversation:
    return Conversation(router, await stage.client(router), name)


def home_of(router: Router, replicas: list[SimReplica], seen: Seen) -> SimReplica:
    return next(replica for replica in replicas if router.id_of(replica) == seen.answer.replica)


def lost(before: Seen, now: Seen, cause: Cause) -> None:
    """The whole of the history was computed again for this cause, as the engine says."""
    turn = now.turn
    assert (turn.session, turn.number) == (before.turn.session, before.turn.number + 1)
    assert (turn.cause, turn.change) == (cause, None)
    assert turn.history_tokens == whole_blocks(before.prompt_tokens)
    assert turn.cached_tokens == now.cached_tokens
    assert turn.lost_tokens == turn.history_tokens - now.cached_tokens > 2 * BLOCK_TOKENS
    assert turn.idle_s is not None


def foretold(now: Seen) -> None:
    """The header said so before the engine did."""
    turn, header = now.turn, now.header
    assert (header["cause"], header["lost"]) == (turn.cause, str(turn.lost_tokens))
    assert (header["history"], header["matched"]) == (str(turn.history_tokens), str(turn.cached_tokens))
    assert "change" not in header


async def test_a_first_turn_loses_nothing(stage: Stage) -> None:
    router, _ = await fleet_of(stage, 1)
    first = await (await conversation(stage, router)).say()
    assert (first.turn.number, first.turn.cause, first.turn.idle_s) == (1, Cause.FIRST_SEEN, None)
    assert (first.turn.history_tokens, first.turn.lost_tokens) == (0, 0)
    foretold(first)


async def test_evicted_and_the_router_knew(stage: Stage) -> None:
    router, (replica,) = await fleet_of(stage, 1, engine=EngineConfig(kv_tokens=2_000))
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    for name in range(1, 5):
        await (await conversation(stage, router, name)).turns(2)
    now = await talk.say()
    assert replica.engine.stats.prefix_hits_tokens > 0
    lost(before, now, Cause.EVICTED)
    assert now.header["cause"] == "evicted"


async def test_evicted_and_only_the_engine_knew(stage: Stage) -> None:
    """The size of its cache is not read here, so all is believed to be there."""
    replica = await stage.replica(engine=EngineConfig(kv_tokens=2_000))
    router = await stage.router(replica)
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    for name in range(1, 5):
        await (await conversation(stage, router, name)).turns(2)
    now = await talk.say()
    lost(before, now, Cause.EVICTED)
    assert now.header["lost"] == "0"


async def test_restarted(stage: Stage) -> None:
    router, (replica,) = await watched(stage, 1)
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    await router.until(lambda: bool(router.books(replica).report.prefix_queries_tokens))
    replica.faults.set(Fault(FaultKind.RESTART_COLD))
    await router.until(lambda: len(router.books(replica).mirror) == 0)
    talk.client = await stage.client(router)
    now = await talk.say()
    lost(before, now, Cause.RESTARTED)
    foretold(now)
    after = await talk.say()
    assert (after.turn.lost_tokens, after.turn.cause) == (0, None)


async def watched(stage: Stage, count: int) -> tuple[Router, list[SimReplica]]:
    replicas = await stage.replicas(count)
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: all(router.books(replica).report.kv_tokens for replica in replicas))
    return router, replicas


async def test_restarted_and_placed_elsewhere(stage: Stage) -> None:
    router, replicas = await watched(stage, 3)
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    home = home_of(router, replicas, before)
    await router.until(lambda: bool(router.books(home).report.prefix_queries_tokens))
    home.restart_cold()
    await router.until(lambda: len(router.books(home).mirror) == 0)
    now = await talk.say()
    assert now.answer.replica != before.answer.replica
    lost(before, now, Cause.RESTARTED)


async def test_spilled(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    talk = await conversation(stage, router)
    before = (await talk.turns(3))[-1]
    home = router.id_of(home_of(router, replicas, before))
    router.house.fleet.observe_engine(home, EngineReport(waiting=1_000))
    now = await talk.say()
    assert (now.answer.reason, now.answer.replica != home) == ("spilled", True)
    lost(before, now, Cause.SPILLED)
    foretold(now)


async def test_failover(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    home = home_of(router, replicas, before)
    home.faults.set(Fault(FaultKind.REFUSE))
    home.restart_cold()
    await router.until(lambda: not router.house.plane.pools[router.id_of(home)])
    now = await talk.say()
    assert router.records.finished[-1].attempts == 2
    lost(before, now, Cause.FAILOVER)
    foretold(now)
    away = await talk.say()
    assert (away.turn.lost_tokens, away.answer.replica) == (0, now.answer.replica), "it has a new home"


async def test_failover_from_a_home_that_is_known_to_be_away(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas)
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    home = home_of(router, replicas, before)
    home.faults.set(Fault(FaultKind.REFUSE))
    home.restart_cold()
    await router.until(lambda: not router.house.plane.pools[router.id_of(home)])
    other = await conversation(stage, router, 9)
    while router.books(home).health.up:
        await other.say()
        other = await conversation(stage, router, other.name + 1)
    now = await talk.say()
    assert (now.answer.reason, router.records.finished[-1].attempts) == ("failover", 1)
    lost(before, now, Cause.FAILOVER)


async def test_a_home_that_has_left_the_fleet(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    router.house.plane.remove_replica(before.answer.replica or "")
    now = await talk.say()
    lost(before, now, Cause.FAILOVER)


async def test_drained(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    answer = await (await router.admin()).post(f"/api/replicas/{before.answer.replica}/drain")
    assert answer.status_code == 200
    now = await talk.say()
    assert now.answer.reason == "drained"
    lost(before, now, Cause.DRAINED)
    foretold(now)


async def test_policy(stage: Stage) -> None:
    router, _ = await turning(stage, 3)
    talk = await conversation(stage, router)
    before = await talk.say()
    now = await talk.say()
    assert now.answer.reason == "policy"
    lost(before, now, Cause.POLICY)
    foretold(now)


async def turning(stage: Stage, count: int) -> tuple[Router, list[SimReplica]]:
    """A fleet whose replicas take turns."""
    replicas = await stage.replicas(count)
    return await stage.router(*replicas, policy="round-robin"), replicas


async def test_spread(stage: Stage) -> None:
    """A second session with the same long system prompt, on a replica that does not hold it."""
    router, _ = await turning(stage, 2)
    one, other = await conversation(stage, router), await conversation(stage, router, 2)
    for talk in (one, other):
        talk.messages[0]["content"] = SYSTEM * 4
    held = await one.say()
    first = await other.say()
    turn = first.turn
    assert (turn.number, turn.cause, turn.change, turn.cached_tokens) == (1, Cause.SPREAD, None, 0)
    assert turn.lost_tokens == turn.history_tokens
    shared = 0.8 * held.prompt_tokens
    assert 0.75 * shared < turn.lost_tokens < held.prompt_tokens
    foretold(first)


async def test_a_first_turn_that_finds_what_others_share_loses_nothing(stage: Stage) -> None:
    router, _ = await fleet_of(stage, 1)
    await (await conversation(stage, router)).say()
    first = await (await conversation(stage, router, 2)).say()
    assert first.cached_tokens > 0
    assert (first.turn.cause, first.turn.lost_tokens) == (Cause.FIRST_SEEN, 0)


# What is no turn


async def test_a_client_that_leaves_before_the_answer_has_had_no_turn(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    body = {"model": "sim-model", "messages": [{"role": "user", "content": text(1, 3_000)}], "max_tokens": 4}
    client = await stage.client(router)
    client.send(request(CHAT, body))
    await router.until(
        lambda: bool(router.house.plane.active) and bool(replica.engine.running + replica.engine.waiting)
    )
    client.leave()
    await router.until(lambda: bool(router.records.finished))
    assert router.records.finished[0].turn is None
    assert len(router.house.plane.sessions) == 0


async def test_turns_of_one_session_at_the_same_time(stage: Stage) -> None:
    """Three questions at once behind one history: none is a change of another, and the session goes on."""
    router, _ = await fleet_of(stage, 2)
    talk = await conversation(stage, router)
    await talk.turns(2)
    bodies = [
        talk.body | {"messages": [*talk.messages, {"role": "user", "content": text(500 + number)}]}
        for number in range(3)
    ]
    answers = await asyncio.gather(*(stage.ask(router, request(CHAT, body)) for body in bodies))
    assert [answer.status for answer in answers] == [200] * 3
    await router.until(lambda: len(router.records.finished) == 5)
    accounts = [record.turn for record in router.records.finished[2:]]
    assert [account and account.change for account in accounts] == [None] * 3
    assert [account and account.number for account in accounts] == [3] * 3
    last = await talk.say()
    assert (last.turn.lost_tokens, last.turn.change) == (0, None)


async def test_the_text_of_a_request_is_let_go_before_its_answer_comes(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    client = await stage.client(router)
    client.send(request(CHAT, {"model": "sim-model", "messages": [{"role": "user", "content": text(1, 3_000)}]}))
    await router.until(lambda: bool(router.house.plane.active))
    prompts = [exchange.request.prompt for exchange in router.house.plane.active]  # type: ignore[attr-defined]
    await router.until(lambda: all(prompt.parts == [] for prompt in prompts), "the text is kept")
    assert len(router.house.plane.active) == len(prompts) == 1, "its answer has not come"


# What else tells of it


async def test_explain_says_what_would_become_of_the_turn_and_learns_nothing(stage: Stage) -> None:
    router, _ = await fleet_of(stage, 2)
    admin = await router.admin()
    talk = await conversation(stage, router)
    before = (await talk.turns(2))[-1]
    talk.messages[0]["content"] = "Quite another system prompt. " * 30
    talk.messages.append({"role": "user", "content": text(3)})
    remembered = router.house.plane.sessions.size_bytes
    for _ in range(2):
        turn = (await admin.post("/api/explain", json=talk.body)).json()["turn"]
        assert (turn["session"], turn["number"]) == (before.turn.session, 3)
        assert (turn["cause"], turn["lost_tokens"]) == ("system-changed", whole_blocks(before.prompt_tokens))
        assert turn["change"] == {"cause": "system-changed", "message": 0, "role": "system", "kept_tokens": 0}
    assert router.house.plane.sessions.size_bytes == remembered
    short = await admin.post("/api/explain", json={"model": "sim-model", "messages": []})
    assert short.json()["turn"] is None
    decided = (await admin.get("/api/decisions")).json()[0]["turn"]
    assert (decided["session"], decided["number"], decided["lost_tokens"]) == (before.turn.session, 2, 0)


async def until_joined(router: Router) -> None:
    store = router.house.store
    assert store is not None
    await router.until(lambda: store.state == "up" and bool(store.peers))


async def until_told(router: Router, turn: Seen) -> None:
    """Routers tell each other of a turn when it begins, with its length as they estimate it, and again at its end."""
    ends = router.house.fleet.index.turns
    await router.until(
        lambda: any(packed >> 24 == turn.prompt_tokens for half in ends.halves() for packed in half.values())
    )


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


async def test_a_session_that_another_router_served_goes_on_and_is_not_seen_for_the_first_time(
    stage: Stage, redis_url: str
) -> None:
    replicas = await stage.replicas(2)
    sharing: dict[str, Any] = {"redis": redis_url, "redis_prefix": "misses", "redis_deadline_ms": 500}
    one, other = [await stage.router(*replicas, **sharing) for _ in range(2)]
    for router in (one, other):
        await until_joined(router)
    talk = await conversation(stage, one)
    before = (await talk.turns(2))[-1]
    await until_told(other, before)
    talk.router, talk.client = other, await stage.client(other)
    now = await talk.say()
    assert (now.turn.number, now.turn.cause, now.turn.lost_tokens) == (3, None, 0)
    assert now.turn.history_tokens == whole_blocks(before.prompt_tokens)
    await until_told(one, now)
    talk.router, talk.client = one, await stage.client(one)
    back = await talk.say()
    assert (back.turn.number, back.turn.cause, back.turn.lost_tokens) == (4, None, 0)
    assert back.turn.history_tokens == whole_blocks(now.prompt_tokens), "what the other router served counts"
