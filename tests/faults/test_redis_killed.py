"""Redis is killed and started again, empty: nobody waits, nobody fails, and the routers share again."""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_requests_go_on_while_it_is_gone_and_are_shared_when_it_is_back(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer() as server:
        sharing = await Sharing.open(stage, caplog, *both_names(server.url))
        known = await sharing.known_here_and_there()
        server.kill()
        await sharing.goes_on(known)
        await sharing.become(State.DOWN)
        await sharing.goes_on(known)
        server.start()
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        sharing.check_log([State.DOWN, State.UP])
