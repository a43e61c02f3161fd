"""A data-parallel engine is one replica for each rank: a chat's next turn goes to the rank that holds it."""

from __future__ import annotations

from collections import Counter

from router.core.health import State
from router.core.types import ReplicaId
from router.sim.replica import SimReplica
from tests.rig.client import chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import BLOCK_TOKENS, ChatTalk

RANKS = 4


async def fleet_of_ranks(stage: Stage) -> tuple[SimReplica, Router, dict[ReplicaId, int]]:
    """A router on one data-parallel engine, watched, and which replica is which rank."""
    replica = await stage.replica(data_parallel=RANKS)
    router = await stage.router(f"{replica.url}?ranks={RANKS}", watched=True, scrape_interval_s=0.1)
    await router.until(lambda: all(known.health.state is State.READY and known.models for known in router.house.fleet))
    ranks = {name: endpoint.rank for name, endpoint in router.house.endpoints.items()}
    return replica, router, {name: rank for name, rank in ranks.items() if rank is not None}


async def test_every_turn_of_a_chat_hits_the_rank_that_holds_the_last_one(stage: Stage) -> None:
    _, router, ranks = await fleet_of_ranks(stage)
    client = await stage.client(router)
    homes = []
    for number in range(12):
        talk = ChatTalk(number, stream=number % 2 == 0)
        before, home = 0, None
        for turn in range(4):
            answer = await client.ask(request(talk.path, {"model": "sim-model"} | talk.ask()))
            assert answer.status == 200, answer.body
            tokens, cached = talk.take(answer)
            if turn:
                assert cached > before - BLOCK_TOKENS, "the rank did not hold the last turn"
                assert answer.replica == home
                assert answer.reason == "warm"
            before, home = tokens, answer.replica
        assert home is not None
        homes.append(ranks[home])
    assert set(homes) == set(range(RANKS)), f"chats were spread so: {Counter(homes)}"


async def test_requests_name_the_rank_that_was_chosen_and_the_clients_own_choice_is_not_passed(stage: Stage) -> None:
    replica, router, ranks = await fleet_of_ranks(stage)
    for own in ([], [("X-Data-Parallel-Rank", "99")]):
        answer = await stage.ask(router, chat("a long story " * 100, headers=own))
        assert answer.status == 200, answer.body
        assert answer.replica is not None
        sent = [arrival for arrival in replica.requests if arrival.method == "POST"][-1]
        named = [value for name, value in sent.headers if name.lower() == b"x-data-parallel-rank"]
        assert named == [b"%d" % ranks[answer.replica]]


async def test_each_rank_has_the_load_and_the_counts_that_are_its_own(stage: Stage) -> None:
    replica, router, ranks = await fleet_of_ranks(stage)
    answer = await stage.ask(router, chat("a long story " * 100))
    assert answer.replica is not None
    queries = {name: router.house.fleet[name] for name in ranks}
    await router.until(lambda: bool(queries[answer.replica or ""].report.prefix_queries_tokens))
    counted = [name for name, known in queries.items() if known.report.prefix_queries_tokens]
    assert counted == [answer.replica]
    engines = [rank.driver.engine.stats.prompt_tokens for rank in replica.state.ranks.all]
    assert engines[ranks[answer.replica]] > 0
    assert sum(tokens > 0 for tokens in engines) == 1


async def test_one_page_is_read_for_all_ranks(stage: Stage) -> None:
    replica, router, _ = await fleet_of_ranks(stage)
    pages = [arrival.arrived_s for arrival in replica.requests if arrival.path == "/metrics"]
    probes = [arrival for arrival in replica.requests if arrival.path == "/health"]
    assert len(pages) + len(probes) < 2 * RANKS, "as if each rank were an engine of its own"
    assert len(router.house.fleet) == RANKS


async def test_a_restart_is_a_restart_of_every_rank(stage: Stage) -> None:
    replica, router, ranks = await fleet_of_ranks(stage)
    client = await stage.client(router)
    for number in range(12):
        await client.ask(chat(f"{number} a long story " * 100))
    await router.until(lambda: all(known.report.prefix_queries_tokens for known in router.house.fleet))
    assert all(len(known.mirror) for known in router.house.fleet)
    replica.restart_cold()
    await router.until(lambda: not any(len(known.mirror) for known in router.house.fleet))
    assert len(ranks) == RANKS
