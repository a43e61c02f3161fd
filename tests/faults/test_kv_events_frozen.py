"""An engine answers requests and publishes nothing any more: after a silence it is not believed to be as published."""

import pytest

from router.adapters.kv_events import follower as following
from tests.rig.client import chat
from tests.rig.event_fleet import CALM, caught_up, engine, follower, live, publisher, turn
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk


@pytest.fixture(autouse=True)
def _short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is a matter of seconds; here of hundredths."""
    monkeypatch.setattr(following, "SILENCE_S", 0.02)
    monkeypatch.setattr(following, "REPLAY_S", 0.05)
    monkeypatch.setattr(following, "AGAIN_S", 0.05)


async def test_the_mirror_stands_in_until_it_publishes_again(stage: Stage) -> None:
    replica = await engine(stage)
    router = await stage.router(replica, **CALM)
    await live(router, replica)
    talk = ChatTalk(1, stream=False)
    await turn(stage, router, talk)
    await caught_up(router, replica)
    publisher(replica).faults.frozen = True
    while follower(router, replica).live:
        assert (await stage.ask(router, chat("still there?", max_tokens=1))).status == 200
    answer, cached = await turn(stage, router, talk)
    assert (answer.reason, answer.status) == ("warm", 200)
    assert cached > 0
    publisher(replica).faults.frozen = False
    await turn(stage, router, talk)
    await live(router, replica)
    await caught_up(router, replica)
    assert len(follower(router, replica).cache) == replica.engine.pool.cached_hashes
    answer, cached = await turn(stage, router, talk)
    assert answer.matched_tokens == cached
