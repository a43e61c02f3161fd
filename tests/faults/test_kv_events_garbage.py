"""What an engine publishes can't be read: the mirror stands in, and no request fails."""

from tests.rig.event_fleet import CALM, engine, follower, live, publisher, turn
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk


async def test_the_mirror_stands_in(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    await live(router, replica)
    publisher(replica).faults.garbage = True
    talk = ChatTalk(1, stream=False)
    await turn(stage, router, talk)
    await router.until(lambda: follower(router, replica).counts.garbage > 0)
    assert not follower(router, replica).live
    answer, cached = await turn(stage, router, talk)
    assert answer.reason == "warm"
    assert cached > 0
