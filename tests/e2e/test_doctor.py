"""`warmroute doctor` on running fleets: the two-turn line with its numbers, and mistakes made on purpose."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from router.app.doctor.examine import Extent, Report, Unreachable, examine
from router.app.doctor.findings import Check, Finding, Level
from router.app.doctor.routers import Target
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from router.sim.types import EngineConfig
from tests.app.doctor.link import link
from tests.rig.running import Router
from tests.rig.stage import Stage

PROBES = {"/health", "/metrics", "/version", "/v1/models", "/kv_event_sources", "/server_info", "/is_paused"}


async def doctor(served: Router, *, extent: Extent | None = None, **target: Any) -> Report:
    admin = await served.admin()
    told = {"router": served.url, "admin": str(admin.base_url).rstrip("/")} | target
    return await examine(Target(**told), extent or Extent(), Random(7))


async def watched(stage: Stage, *replicas: SimReplica | str, **settings: Any) -> Router:
    """A router that has read its engines."""
    router = await stage.router(*replicas, watched=True, **settings)
    seen = [replica for replica in replicas if isinstance(replica, SimReplica)]
    await router.until(
        lambda: all(router.books(one).report.kv_tokens and router.books(one).models for one in seen),
        "the router did not read its engines",
    )
    return router


def all_of(report: Report, check: Check) -> list[Finding]:
    return [finding for finding in report.findings if finding.check is check]


def one(report: Report, check: Check) -> Finding:
    (found,) = all_of(report, check)
    return found


def levels(report: Report, check: Check) -> set[Level]:
    return {finding.level for finding in all_of(report, check)}


async def test_a_sound_fleet_and_the_two_turn_line(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await watched(stage, *replicas)
    report = await doctor(router)
    assert report.sound
    assert {finding.level for finding in report.findings} == {Level.OK, Level.NOTE}
    warm = next(replica for replica in replicas if replica.engine.stats.prefix_hits_tokens > 1_000)
    told = one(report, Check.TWO_TURNS)
    assert told.what == (
        f"hits rose by 1,952 of 1,965 tokens, 122 full blocks of 16, on the same replica ({router.id_of(warm)}) "
        "(by the counters of all engines; the answer says the same)"
    )
    for check in (Check.GENERATES, Check.TOKEN_DETAILS, Check.PREFIX_CACHING, Check.VERSION, Check.REPLICA_STATE):
        assert len(all_of(report, check)) == 3
    assert one(report, Check.ALIKE).level is Level.OK


async def test_without_requests_no_engine_is_made_to_work(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await watched(stage, *replicas)
    report = await doctor(router, extent=Extent(requests=False))
    assert one(report, Check.TWO_TURNS).level is Level.NOTE
    assert not all_of(report, Check.GENERATES)
    asked = {arrival.path for replica in replicas for arrival in replica.requests}
    assert asked <= PROBES


async def test_prefix_caching_that_is_off(stage: Stage) -> None:
    replica = await stage.replica(engine=EngineConfig(prefix_caching=False))
    report = await doctor(await watched(stage, replica))
    assert not report.sound
    assert one(report, Check.PREFIX_CACHING).level is Level.PROBLEM
    told = one(report, Check.TWO_TURNS)
    assert (told.level, told.why) == (Level.PROBLEM, "its prefix caching is off")


async def test_answers_that_do_not_say_what_was_cached(stage: Stage) -> None:
    replicas = await stage.replicas(2, prompt_tokens_details=False)
    report = await doctor(await watched(stage, *replicas))
    assert report.sound
    assert {finding.change for finding in all_of(report, Check.TOKEN_DETAILS)} == {"--enable-prompt-tokens-details"}
    assert "1,952 of 1,965 tokens" in one(report, Check.TWO_TURNS).what  # the counters tell


async def test_short_models_get_a_shorter_conversation(stage: Stage) -> None:
    replica = await stage.replica(max_model_len=2_048)
    report = await doctor(await watched(stage, replica))
    assert report.sound
    assert "496 of 508 tokens, 31 full blocks" in one(report, Check.TWO_TURNS).what


async def test_a_dead_replica_does_not_stop_the_rest(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await watched(stage, *replicas)
    replicas[0].faults.set(Fault(FaultKind.REFUSE))
    await router.until(lambda: not router.books(replicas[0]).health.available(0.0), "it was not ejected")
    report = await doctor(router)
    assert not report.sound
    gone = [finding for finding in report.findings if router.id_of(replicas[0]) in finding.about]
    assert {finding.check for finding in gone} == {Check.REPLICA_STATE, Check.REACHABLE}
    assert {finding.level for finding in gone} == {Level.PROBLEM}
    assert one(report, Check.TWO_TURNS).level is Level.OK


async def test_an_engine_that_answers_and_generates_nothing(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await watched(stage, *replicas)
    replicas[0].faults.set(Fault(FaultKind.STATUS, status=500, path="/v1/completions"))
    report = await doctor(router)
    assert levels(report, Check.GENERATES) == {Level.OK, Level.PROBLEM}


async def test_a_sleeping_engine_is_not_asked_to_generate(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await watched(stage, *replicas)
    replicas[0].faults.set(Fault(FaultKind.SLEEP))
    await router.until(lambda: bool(router.books(replicas[0]).report.asleep))
    report = await doctor(router)
    assert one(report, Check.AWAKE).about.startswith(router.id_of(replicas[0]))
    assert len(all_of(report, Check.GENERATES)) == 1
    assert one(report, Check.TWO_TURNS).level is Level.OK


async def test_a_router_in_front_of_a_router(stage: Stage) -> None:
    inner = await watched(stage, await stage.replica())
    outer = await stage.router(inner.url, watched=True)
    report = await doctor(outer)
    assert one(report, Check.IS_VLLM).what == "a Warmroute answers there, not a vLLM"
    assert not report.sound


async def test_an_engine_that_is_listed_twice(stage: Stage) -> None:
    replica = await stage.replica()
    async with link([replica.port]) as second:
        report = await doctor(await watched(stage, replica, second))
        assert one(report, Check.LISTED_TWICE).level is Level.PROBLEM
    assert not all_of(await doctor(await watched(stage, *await stage.replicas(2))), Check.LISTED_TWICE)


async def test_a_balancer_in_place_of_an_engine(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    async with link([replica.port for replica in replicas]) as balanced:
        report = await doctor(await stage.router(balanced, watched=True))
        assert one(report, Check.ONE_ENGINE).level is Level.PROBLEM


async def test_ranks_that_the_router_was_not_told(stage: Stage) -> None:
    replica = await stage.replica(data_parallel=2)
    router = await stage.router(replica, watched=True)
    told = one(await doctor(router), Check.RANKS)
    assert (told.level, told.change) == (Level.PROBLEM, f"--replica {replica.url}?ranks=2")
    named = await stage.router(f"{replica.url}?ranks=2", watched=True)
    await named.until(lambda: all(replica.models for replica in named.house.fleet))
    report = await doctor(named)
    assert one(report, Check.RANKS).level is Level.OK
    assert len(all_of(report, Check.GENERATES)) == 1  # one engine, whatever its ranks
    assert one(report, Check.TWO_TURNS).level is Level.OK


async def test_another_policy(stage: Stage) -> None:
    router = await watched(stage, *await stage.replicas(2), policy="round-robin")
    report = await doctor(router)
    assert one(report, Check.POLICY).level is Level.WARNING
    told = one(report, Check.TWO_TURNS)
    assert (told.level, told.change) == (Level.PROBLEM, "--policy affinity")


async def test_replicas_that_are_not_alike(stage: Stage) -> None:
    replicas = [await stage.replica(), await stage.replica(version="0.27.1")]
    report = await doctor(await watched(stage, *replicas))
    assert "vLLM differs: 0.32.0 at" in one(report, Check.ALIKE).what
    assert levels(report, Check.VERSION) == {Level.OK, Level.NOTE}


async def test_keys_are_asked_for_and_given(stage: Stage) -> None:
    replica = await stage.replica(api_key="engine-key")
    keys = {"api_keys": "client-key", "admin_token": "admin-token", "engine_api_key": "engine-key"}
    router = await watched(stage, replica, **keys)
    without = await doctor(router, replicas=(replica.url,))
    assert "WARMROUTE_ADMIN_TOKEN" in one(without, Check.ADMIN).change
    assert "OPENAI_API_KEY" in one(without, Check.TWO_TURNS).change
    assert "WARMROUTE_ENGINE_API_KEY" in one(without, Check.MODELS).change
    report = await doctor(router, client_key="client-key", admin_token="admin-token", engine_key="engine-key")
    assert report.sound
    assert one(report, Check.TWO_TURNS).level is Level.OK
    for told in (without, report):
        text = str(told)
        assert not [key for key in keys.values() if key in text]


async def test_without_an_admin_port_replicas_can_be_given(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await watched(stage, *replicas)
    nobody = "http://127.0.0.1:1"
    report = await doctor(router, admin=nobody, replicas=tuple(replica.url for replica in replicas))
    assert one(report, Check.ADMIN).level is Level.WARNING
    assert {finding.about for finding in all_of(report, Check.VERSION)} == {replica.url for replica in replicas}
    told = one(report, Check.TWO_TURNS)
    assert told.level is Level.OK
    assert told.what.endswith("(as the answer says; the counters could not all be read)")


async def test_an_admin_port_of_another_router(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router, other = await watched(stage, *replicas), await watched(stage, *replicas)
    admin = await other.admin()
    report = await doctor(router, admin=str(admin.base_url).rstrip("/"))
    assert levels(report, Check.ADMIN) == {Level.OK, Level.WARNING}


async def test_a_model_that_nobody_serves(stage: Stage) -> None:
    report = await doctor(await watched(stage, await stage.replica()), model="no-such-model")
    assert one(report, Check.TWO_TURNS).what == "turn 1 failed: 404 model_not_found"


async def test_other_models_are_named(stage: Stage) -> None:
    router = await watched(stage, await stage.replica(models=("one",)), await stage.replica(models=("two",)))
    report = await doctor(router)
    assert [finding.what for finding in all_of(report, Check.TWO_TURNS)][1:] == ["tried with one alone"]
    assert report.sound
    assert len(all_of(await doctor(router, model="two"), Check.TWO_TURNS)) == 1


async def test_a_proxy_that_gathers_streams(stage: Stage) -> None:
    """A stream of 64 tokens takes 0.6 s, and through the proxy it comes at once."""
    replica = await stage.replica(time_scale=2.0, engine=EngineConfig(prefill_tokens_per_s=1e6))
    router = await watched(stage, replica)
    assert one(await doctor(router), Check.STREAMS).level is Level.OK
    async with link([router.port], gathers=True) as proxy:
        report = await doctor(router, router=proxy)
        assert one(report, Check.STREAMS).level is Level.WARNING
        assert one(report, Check.TWO_TURNS).level is Level.OK


async def test_a_keep_alive_that_is_shorter_than_the_routers(stage: Stage) -> None:
    report = await doctor(await watched(stage, await stage.replica(keep_alive_s=0.2)), extent=Extent(thorough=True))
    told = one(report, Check.KEEP_ALIVE)
    assert told.level is Level.WARNING
    assert "--upstream-keepalive-s" in told.change


async def test_a_router_that_is_not_there() -> None:
    with pytest.raises(Unreachable, match="the connection is refused"):
        await examine(Target("http://127.0.0.1:1", "http://127.0.0.1:1"), Extent(), Random(7))


async def test_nothing_of_a_prompt_is_in_a_report(stage: Stage) -> None:
    replica = await stage.replica()
    report = await doctor(await watched(stage, replica))
    bodies = [json.loads(arrival.body) for arrival in replica.requests if arrival.method == "POST"]
    words = {word for body in bodies for word in str(body.get("prompt") or body["messages"][0]["content"]).split()[:1]}
    assert words
    assert not [word for word in words if word in str(report)]
