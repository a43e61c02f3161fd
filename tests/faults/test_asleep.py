"""A sleeping or paused vLLM answers /health and lets requests wait without end: only its metrics tell."""

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat, request
from tests.rig.stage import Stage


async def test_nothing_is_sent_to_a_sleeping_replica_until_it_wakes(stage: Stage) -> None:
    sleeper, awake = await stage.replicas(2)
    sleeper.faults.set(Fault(FaultKind.SLEEP))
    router = await stage.router(sleeper, awake, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: router.books(sleeper).report.asleep is True)
    client = await stage.client(router)
    for _ in range(4):
        assert (await client.ask(chat())).replica == router.id_of(awake)
    assert (await client.ask(request("/readyz"))).json() == {"status": "ok", "replicas": 2, "up": 1}
    fleet = (await (await router.admin()).get("/api/fleet")).json()["replicas"]
    assert [replica["asleep"] for replica in fleet] == [True, False]
    sleeper.faults.clear()
    await router.until(lambda: router.books(sleeper).report.asleep is False)
    assert router.id_of(sleeper) in {(await client.ask(chat())).replica for _ in range(4)}


async def test_a_session_at_home_on_a_sleeper_fails_over_and_its_new_home_is_learnt(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1)
    session = [("x-session-id", "s")]
    first = await stage.ask(router, chat(headers=session))
    home = next(replica for replica in replicas if router.id_of(replica) == first.replica)
    home.faults.set(Fault(FaultKind.SLEEP))
    await router.until(lambda: router.books(home).report.asleep is True)
    second = await stage.ask(router, chat(headers=session))
    assert (second.status, second.reason) == (200, "failover")
    home.faults.clear()
    await router.until(lambda: router.books(home).report.asleep is False)
    third = await stage.ask(router, chat(headers=session))
    assert (third.replica, third.reason) == (second.replica, "session")


async def test_what_a_sleeper_held_is_forgotten(stage: Stage) -> None:
    """vLLM discards its KV cache when it goes to sleep: neither its start time nor its counters tell afterwards."""
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    text = "a long story, " * 200
    await stage.ask(router, chat(text))
    assert (await stage.ask(router, chat(text))).matched_tokens > 0
    replica.faults.set(Fault(FaultKind.SLEEP))
    await router.until(lambda: router.books(replica).report.asleep is True)
    assert len(router.books(replica).mirror) == 0
    replica.faults.clear()
    await router.until(lambda: router.books(replica).report.asleep is False)
    answer = await stage.ask(router, chat(text))
    assert answer.matched_tokens == 0
    assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
