"""What the router predicts to be cached is what the engine reports, request by request, while caches overflow."""

import socket
from random import Random
from typing import Any

import pytest

from router.sim.replica import SimReplica
from tests.rig.event_fleet import CALM, caught_up, engine, follower, live, publisher, turn
from tests.rig.running import Router
from tests.rig.sim_tokens import SimTokens
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


async def differences(
    stage: Stage, router: Router, replicas: list[SimReplica], turns: int, **more: Any
) -> tuple[list[str], int, int]:
    """Chats take turns at random; return follow-ups at home whose prediction was wrong, their number, and all hits."""
    chance = Random(7)
    talks = [ChatTalk(number, stream=False) for number in range(12)]
    homes: dict[int, str | None] = {}
    found: list[str] = []
    followed = hits = 0
    for step in range(turns):
        talk = chance.choice(talks)
        answer, cached = await turn(stage, router, talk, max_tokens=chance.randint(1, 90), ignore_eos=True, **more)
        hits += cached
        if homes.get(talk.number) == answer.replica:
            followed += 1
            if answer.matched_tokens != cached:
                found.append(f"{step}: turn {talk.turns} of {talk.number}: {answer.matched_tokens}, not {cached}")
        homes[talk.number] = answer.replica
        if talk.turns == 8:
            talks[talks.index(talk)] = ChatTalk(100 + step, stream=False)
        for replica in replicas:
            await caught_up(router, replica)
    return found, followed, hits


@pytest.mark.parametrize(
    "events", [{}, {"arrays": True, "byte_hashes": True}, {"name_sessions": False}], ids=["now", "arrays", "unnamed"]
)
async def test_without_a_tokenizer_follow_ups_are_exact(stage: Stage, events: dict[str, Any]) -> None:
    replicas = [await engine(stage, **events) for _ in range(3)]
    router = await stage.router(*replicas, **CALM)
    await live(router, *replicas)
    found, followed, hits = await differences(stage, router, replicas, turns=200)
    assert sum(replica.engine.pool.evicted_blocks for replica in replicas) > 200, "no cache overflowed"
    assert hits > 0
    assert followed > 60, "chats moved all the time"
    assert len(found) <= followed / 100, found


async def test_with_a_tokenizer_every_request_is_exact(stage: Stage) -> None:
    replicas = [await engine(stage) for _ in range(3)]
    router = await stage.router(*replicas, **CALM)
    router.house.plane.tokenizer = SimTokens()
    await live(router, *replicas)
    talks, chance = [ChatTalk(number, stream=False) for number in range(12)], Random(8)
    for _ in range(150):
        talk = chance.choice(talks)
        answer, cached = await turn(stage, router, talk, max_tokens=chance.randint(1, 90), ignore_eos=True)
        assert answer.matched_tokens == cached, "the first turns too: they share a beginning"
        if talk.turns == 8:
            talks.remove(talk)
            talks.append(ChatTalk(200 + len(router.records.finished), stream=False))
        for replica in replicas:
            await caught_up(router, replica)
    assert sum(replica.engine.pool.evicted_blocks for replica in replicas) > 200


async def test_salts_and_adapters_are_scopes(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    router.house.plane.tokenizer = SimTokens()
    await live(router, replica)
    seen = []
    for salt in ("a", "b", "a", "b"):
        answer, cached = await turn(stage, router, ChatTalk(1, stream=False), cache_salt=salt)
        seen.append(cached > 0)
        assert answer.matched_tokens == cached
        await caught_up(router, replica)
    assert seen == [False, False, True, True]


async def test_a_late_router_fetches_what_was_published_before(stage: Stage) -> None:
    replica = await engine(stage)
    first = await stage.router(replica, **CALM)
    for number in range(3):
        await turn(stage, first, ChatTalk(number, stream=False))
    late = await stage.router(replica, **CALM)
    await live(late, replica)
    assert len(follower(late, replica).cache) == replica.engine.pool.cached_hashes > 0


async def test_a_late_router_without_a_replay_does_not_pretend(stage: Stage) -> None:
    replica = await engine(stage, replay=False)
    first = await stage.router(replica, **CALM)
    await turn(stage, first, ChatTalk(1, stream=False))
    late = await stage.router(replica, **CALM)
    await late.until(lambda: publisher(replica).subscribers == 2)
    await turn(stage, late, ChatTalk(2, stream=False))
    await late.until(lambda: follower(late, replica).counts.batches > 0)
    assert not follower(late, replica).live


async def test_engines_may_connect_to_the_router(stage: Stage) -> None:
    port = free_port()
    replicas = [
        await engine(stage, connect_to=f"tcp://127.0.0.1:{port}", topic=f"kv@pod{number}") for number in (1, 11)
    ]
    router = await stage.router(*replicas, **CALM, kv_events_bind=f"tcp://127.0.0.1:{port}")
    await router.until(lambda: all(publisher(replica).subscribers for replica in replicas))
    await live(router, *replicas)
    for number in range(4):
        talk = ChatTalk(number, stream=False)
        await turn(stage, router, talk)
        answer, cached = await turn(stage, router, talk)
        assert answer.matched_tokens == cached > 0
    for replica in replicas:
        await caught_up(router, replica)
        assert len(follower(router, replica).cache) == replica.engine.pool.cached_hashes


async def test_each_rank_is_known_by_its_own_events(stage: Stage) -> None:
    replica = await engine(stage)
    assert replica.state.publishers
    ranked = await stage.replica(data_parallel=2, kv_events=replica.options.kv_events)
    router = await stage.router(f"{ranked.url}?ranks=2", **CALM)
    assert router.house.kv_events is not None
    followers = router.house.kv_events.followers
    await router.until(lambda: len(followers) == 2 and all(one.live for one in followers.values()))
    for number in range(6):
        await turn(stage, router, ChatTalk(number, stream=False))
    by_rank = {router.house.endpoints[name].rank: one for name, one in followers.items()}
    for rank, engine_of_rank in enumerate(ranked.state.ranks.all):
        published = ranked.state.publishers[rank].published
        known = by_rank[rank]
        await router.until(lambda known=known, published=published: known.next_number == published)  # type: ignore[misc]
        assert len(known.cache) == engine_of_rank.driver.engine.pool.cached_hashes > 0


async def test_a_replica_that_leaves_is_followed_no_more(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    await live(router, replica)
    await router.until(lambda: publisher(replica).subscribers == 1)
    known = follower(router, replica)
    router.house.roster.watching.end(router.id_of(replica))  # type: ignore[union-attr]
    await router.until(lambda: publisher(replica).subscribers == 0, "its sockets are open still")
    assert not known.live
    assert router.house.kv_events is not None
    assert not router.house.kv_events.followers


async def test_a_cache_that_was_reset_is_known_to_be_empty(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    await live(router, replica)
    await turn(stage, router, ChatTalk(1, stream=False))
    assert replica.state.reset_prefix_caches()
    await turn(stage, router, ChatTalk(2, stream=False))
    await caught_up(router, replica)
    assert len(follower(router, replica).cache) == replica.engine.pool.cached_hashes


async def test_labels_go_to_engines_and_clients_own_stay(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    await live(router, replica)
    talk = ChatTalk(1, stream=False)
    await turn(stage, router, talk)
    assert (replica.requests[-1].header(b"x-session-id") or b"").startswith(b"wr-")
    await turn(stage, router, talk, session_id="of the body")
    assert replica.requests[-1].header(b"x-session-id") is None
