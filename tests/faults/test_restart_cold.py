"""A replica restarts with an empty cache: what it was believed to hold is forgotten at once, and it is used again."""

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat
from tests.rig.stage import Stage

STORY = "a long story, " * 200


async def test_the_mirror_is_emptied_and_the_replica_used_again_within_one_reading(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1)
    first = await stage.ask(router, chat(STORY))
    home = next(replica for replica in replicas if router.id_of(replica) == first.replica)
    await router.until(lambda: bool(router.books(home).report.prefix_queries_tokens))
    assert (await stage.ask(router, chat(STORY))).reason == "warm"
    await router.until(lambda: (router.books(home).report.prefix_hits_tokens or 0) > 0)
    home.faults.set(Fault(FaultKind.RESTART_COLD))
    await router.until(lambda: len(router.books(home).mirror) == 0, "the mirror of a cold replica still holds blocks")
    assert router.books(home).health.up
    third = await stage.ask(router, chat(STORY))
    assert third.status == 200
    assert third.matched_tokens == 0
    assert third.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_other_replicas_keep_what_they_hold(stage: Stage) -> None:
    cold, warm = await stage.replicas(2)
    router = await stage.router(cold, warm, watched=True, scrape_interval_s=0.1)
    answers = [await stage.ask(router, chat(f"{number} {STORY}")) for number in range(6)]
    assert {answer.replica for answer in answers} == {router.id_of(cold), router.id_of(warm)}
    held = len(router.books(warm).mirror)
    await router.until(lambda: bool(router.books(cold).report.prefix_queries_tokens))
    cold.restart_cold()
    await router.until(lambda: len(router.books(cold).mirror) == 0)
    assert len(router.books(warm).mirror) == held


async def test_without_readings_the_first_answer_tells(stage: Stage) -> None:
    """`cached_tokens` lower than believed: what was not used since then is taken to be evicted."""
    replica = await stage.replica()
    router = await stage.router(replica)
    for _ in range(2):
        last = await stage.ask(router, chat(STORY))
    assert last.matched_tokens > 0
    await stage.ask(router, chat("other words " * 200))
    replica.restart_cold()
    await router.until(lambda: not router.house.plane.pools[router.id_of(replica)])
    surprised = await stage.ask(router, chat("other words " * 200))
    assert surprised.matched_tokens > 0, "it could not be known"
    assert surprised.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    explained = await (await router.admin()).post("/api/explain", content=chat(STORY).partition(b"\r\n\r\n")[2])
    assert explained.json()["matched_tokens"] == 0, "what is older is gone too"


async def test_requests_in_flight_at_the_restart_are_counted_out(stage: Stage) -> None:
    replica, other = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(replica, other)
    clients = [await stage.client(router) for _ in range(6)]
    for client in clients:
        client.send(chat(stream=True, max_tokens=5_000, ignore_eos=True))
    for client in clients:
        await client.chunk(await client.head())
    replica.restart_cold()
    await router.until(lambda: router.books(replica).ledger.streams == 0)
    assert router.books(replica).ledger.uncached_tokens == 0
    assert router.books(other).ledger.streams == 3
