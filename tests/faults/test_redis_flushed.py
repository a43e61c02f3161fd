"""All keys are flushed: the routers still know what they heard, and what goes on is written again."""

import pytest

from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_what_goes_on_after_a_flush_is_known_to_a_router_that_starts_then(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer() as server:
        sharing = await Sharing.open(stage, caplog, *both_names(server.url))
        known = await sharing.known_here_and_there()
        forgotten = await sharing.new(sharing.a)
        await sharing.flushed_out()
        server.ask("FLUSHALL")
        await sharing.goes_on(known)
        await sharing.shares()
        await sharing.flushed_out()
        third = await sharing.third(server.url)
        assert not await sharing.turn(forgotten, third), "its last turn was before the flush"
        for chat in known.values():
            await sharing.stays_warm(chat, third)
        sharing.check_log([])
