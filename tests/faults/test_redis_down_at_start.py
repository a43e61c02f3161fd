"""Redis is not there when the routers start: they serve, and share as soon as it comes."""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_routers_start_without_it_and_share_when_it_comes(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer() as server:
        server.kill()
        sharing = await Sharing.open(stage, caplog, *both_names(server.url))
        known = await sharing.known()
        await sharing.become(State.DOWN)
        await sharing.goes_on(known)
        server.start()
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        sharing.check_log([State.DOWN, State.UP])
