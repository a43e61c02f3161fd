"""An engine restarts with an empty cache: its events begin at 0 again, and nothing of before is believed."""

from router.sim.faults import Fault, FaultKind
from tests.rig.event_fleet import CALM, caught_up, engine, follower, live, turn
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk


async def test_its_events_tell(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    await live(router, replica)
    talk, other = ChatTalk(1, stream=False), ChatTalk(2, stream=False)
    for _ in range(3):
        await turn(stage, router, talk)
    replica.faults.set(Fault(FaultKind.RESTART_COLD))
    await turn(stage, router, other)
    await caught_up(router, replica)
    assert follower(router, replica).counts.restarts == 1
    assert len(follower(router, replica).cache) == replica.engine.pool.cached_hashes
    answer, cached = await turn(stage, router, other)
    assert answer.matched_tokens == cached > 0


async def test_its_metrics_tell_before_anything_is_published(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM | {"scrape_interval_s": 0.1})
    await live(router, replica)
    talk = ChatTalk(1, stream=False)
    await turn(stage, router, talk)
    await caught_up(router, replica)
    assert len(follower(router, replica).cache) > 0
    await router.until(lambda: bool(router.books(replica).report.prefix_queries_tokens))
    replica.restart_cold()
    await router.until(lambda: len(follower(router, replica).cache) == 0)
    answer, cached = await turn(stage, router, talk)
    assert answer.matched_tokens == cached == 0
    answer, cached = await turn(stage, router, talk)
    assert answer.matched_tokens == cached > 0
    assert follower(router, replica).live
