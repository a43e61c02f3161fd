"""A replica that was taken out for its silence answers /health all along: a token that it generates brings it back."""

from __future__ import annotations

import json

import pytest

from router.core.health import Cause, State
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.stage import Stage


def trials(replica: SimReplica) -> list[dict[str, object]]:
    """The bodies of what the router has sent to see whether it generates."""
    sent = [arrival for arrival in replica.requests if arrival.path == "/v1/completions" and arrival.complete]
    return [json.loads(arrival.body) for arrival in sent]


async def silenced(stage: Stage, *replicas: SimReplica) -> Router:
    """A router that has taken the first replica out for its silence."""
    router = await stage.router(*replicas, watched=True, health_interval_s=0.1)
    await router.until(lambda: all(known.health.state is State.READY and known.models for known in router.house.fleet))
    health = router.books(replicas[0]).health
    health.silent(router.house.plane.clock(), mute=False)
    assert health.silent(router.house.plane.clock(), mute=True), "it was not ejected"
    return router


async def test_a_token_brings_it_back(stage: Stage) -> None:
    wedged, good = await stage.replicas(2)
    wedged.state.freeze()
    router = await silenced(stage, wedged, good)
    health = router.books(wedged).health
    await wedged.wait_for(lambda: bool(trials(wedged)), 5.0)
    body = trials(wedged)[0]
    assert (body["model"], body["max_tokens"], body["stream"]) == ("sim-model", 1, False)
    client = await stage.client(router)
    assert (await client.ask(chat())).replica == router.id_of(good)
    assert health.state is State.EJECTED
    assert health.cause is Cause.SILENCE, "answered health checks say nothing of it"
    wedged.state.driver.thaw()
    await router.until(lambda: health.state is State.READY)
    assert not trials(good)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 503])
async def test_a_refusal_does_not(stage: Stage, status: int) -> None:
    """vLLM's HTTP server gives these without asking its engine."""
    wedged, good = await stage.replicas(2)
    wedged.faults.set(Fault(FaultKind.STATUS, status=status, path="/v1/completions"))
    router = await silenced(stage, wedged, good)
    await wedged.wait_for(lambda: len(trials(wedged)) >= 2, 5.0)
    assert router.books(wedged).health.cause is Cause.SILENCE


async def test_a_rank_is_tried_for_itself(stage: Stage) -> None:
    replica = await stage.replica(data_parallel=2)
    router = await stage.router(f"{replica.url}?ranks=2", watched=True, health_interval_s=0.1)
    await router.until(lambda: all(known.health.state is State.READY and known.models for known in router.house.fleet))
    first, second = router.house.fleet
    wedged = replica.state.ranks.all[1].driver
    wedged.freeze()
    second.health.silent(router.house.plane.clock(), mute=False)
    second.health.silent(router.house.plane.clock(), mute=True)
    await replica.wait_for(lambda: wedged.engine.waiting > 0 or wedged.engine.running > 0, 5.0)
    assert first.health.state is State.READY
    wedged.thaw()
    await router.until(lambda: second.health.state is State.READY)
    assert replica.engine.stats.prompt_tokens == 0, "the trial was another rank's"
