"""Batches of cache events are lost: they are replayed; where that is not possible, the mirror stands in."""

from tests.rig.event_fleet import CALM, caught_up, engine, follower, live, publisher, turn
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk


async def test_what_was_lost_is_replayed(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    await live(router, replica)
    talk = ChatTalk(1, stream=False)
    publisher(replica).faults.lose = 1
    await turn(stage, router, talk)
    other = ChatTalk(2, stream=False)
    await turn(stage, router, other)
    await caught_up(router, replica)
    counts = follower(router, replica).counts
    assert (counts.gaps, counts.forgotten) == (1, 0)
    assert counts.replays == 2, "one at the start, one for the gap"
    assert len(follower(router, replica).cache) == replica.engine.pool.cached_hashes
    answer, cached = await turn(stage, router, other)
    assert answer.matched_tokens == cached > 0


async def test_without_a_replay_the_mirror_stands_in(stage: Stage) -> None:
    replica = await engine(stage, replay=False)
    router = await stage.router(replica, **CALM)
    talk = ChatTalk(1, stream=False)
    await router.until(lambda: publisher(replica).subscribers > 0)
    await turn(stage, router, talk)
    await live(router, replica)
    publisher(replica).faults.lose = 1
    await turn(stage, router, talk)
    await turn(stage, router, talk)
    await router.until(lambda: not follower(router, replica).live)
    assert follower(router, replica).counts.forgotten == 1
    answer, cached = await turn(stage, router, talk)
    assert answer.reason == "warm", "what the mirror has is believed"
    assert cached > 0


async def test_it_is_known_again_once_nearly_all_blocks_are(stage: Stage) -> None:
    replica = await engine(stage, replay=False)
    router = await stage.router(replica, **CALM)
    await router.until(lambda: publisher(replica).subscribers > 0)
    publisher(replica).faults.lose = 1
    for number in range(3):
        await turn(stage, router, ChatTalk(number, stream=False))
    await router.until(lambda: follower(router, replica).counts.forgotten == 1)
    assert not follower(router, replica).live
    for number in range(3, 40):
        await turn(stage, router, ChatTalk(number, stream=False))
    await live(router, replica)
