"""A router that follows the cache events of simulated engines, and chats that go on turn by turn."""

from __future__ import annotations

from typing import Any

from router.adapters.kv_events.follower import Follower
from router.sim.kv_events import KvPublisher
from router.sim.options import KvEventsOptions
from router.sim.server import SimReplica
from router.sim.types import EngineConfig
from tests.rig.client import Answer, chat
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk

SMALL = EngineConfig(kv_tokens=16 * 200)
"""A cache of 199 blocks, 3,184 tokens."""

CALM: dict[str, Any] = {"watched": True, "kv_events": "auto", "health_interval_s": 30, "scrape_interval_s": 30}
"""Settings of a router that hears of an engine by its events alone, after its first readings."""


async def engine(stage: Stage, config: EngineConfig = SMALL, **events: Any) -> SimReplica:
    """Start an engine that publishes its events."""
    return await stage.replica(engine=config, kv_events=KvEventsOptions(**events))


def publisher(replica: SimReplica, rank: int = 0) -> KvPublisher:
    return replica.state.publishers[rank]


def follower(router: Router, replica: SimReplica) -> Follower:
    assert router.house.kv_events is not None
    return router.house.kv_events.followers[router.id_of(replica)]


async def live(router: Router, *replicas: SimReplica) -> None:
    """Wait until all are known by their events."""
    await router.until(lambda: all(follower(router, replica).live for replica in replicas), "not known by its events")


async def caught_up(router: Router, replica: SimReplica) -> None:
    """Wait until all that was published has been taken in."""
    batches = publisher(replica).published
    await router.until(lambda: follower(router, replica).next_number == batches, "batches are on their way")


async def turn(stage: Stage, router: Router, talk: ChatTalk, **more: Any) -> tuple[Answer, int]:
    """Take a conversation one turn on; return the answer, and how many tokens the engine had cached."""
    answer = await stage.ask(router, chat(**talk.ask(), **more))
    assert answer.status == 200, answer.body
    return answer, talk.take(answer)[1]
