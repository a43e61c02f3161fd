"""Every replica is down: a 503 that says when to try again, the truth on /health, and recovery without a restart."""

from typing import Any

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import chat, request
from tests.rig.forms import FORMS
from tests.rig.running import Router
from tests.rig.stage import Stage


async def dark(stage: Stage, **settings: Any) -> tuple[Router, list[SimReplica]]:
    replicas = await stage.replicas(2)
    for replica in replicas:
        replica.faults.set(Fault(FaultKind.REFUSE))
    return await stage.router(*replicas, **settings), replicas


async def test_the_answer_is_503_with_retry_after_in_openais_form(stage: Stage) -> None:
    router, _ = await dark(stage)
    for _ in range(3):
        answer = await stage.ask(router, chat(stream=True))
        assert answer.status == 503
        assert answer.error["code"] == "upstream_failed"
        assert answer.error["type"] == "service_unavailable_error"
        assert int(answer.header("retry-after") or 0) >= 1
        assert answer.header("content-type") == "application/json"


async def test_anthropics_path_has_anthropics_form(stage: Stage) -> None:
    router, _ = await dark(stage)
    answer = await stage.ask(router, FORMS["messages"].request())
    assert answer.status == 503
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "overloaded_error"


async def test_health_tells_the_truth(stage: Stage) -> None:
    router, replicas = await dark(stage, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: not any(replica.health.up for replica in router.house.fleet))
    for path in ("/health", "/readyz"):
        answer = await stage.ask(router, request(path))
        assert (answer.status, answer.json()) == (503, {"status": "no replica is up", "replicas": 2, "up": 0})
    assert (await stage.ask(router, request("/livez"))).status == 200
    replicas[0].faults.clear()
    await router.until(lambda: any(replica.health.up for replica in router.house.fleet))
    assert (await stage.ask(router, request("/readyz"))).json() == {"status": "ok", "replicas": 2, "up": 1}


async def test_it_recovers_with_the_first_replica_that_is_back(stage: Stage) -> None:
    router, replicas = await dark(stage)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 503
    replicas[1].faults.clear()
    answer = await client.ask(chat())
    assert (answer.status, answer.replica) == (200, router.id_of(replicas[1])), "nobody waits for a back-off to pass"


async def test_the_connection_of_a_client_that_got_503_lives_on(stage: Stage) -> None:
    router, replicas = await dark(stage)
    client = await stage.client(router)
    client.send(chat() + chat() + request("/livez"))
    assert [(await client.answer()).status for _ in range(3)] == [503, 503, 200]
