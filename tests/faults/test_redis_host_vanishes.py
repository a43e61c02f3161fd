"""Redis' host vanishes: nothing that is sent there is acknowledged, and no connection is accepted or refused.

Requests go on with what each router knows. When the host is back, the routers share again over new connections: those
of before may stay open and silent for ever, so none is waited for.
"""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.faulty_link import FaultyLink
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_requests_go_on_while_it_is_gone_and_are_shared_when_it_is_back(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer() as server:
        async with FaultyLink(server.port) as link:
            sharing = await Sharing.open(stage, caplog, *both_names(f"redis://127.0.0.1:{link.port}/0"))
            known = await sharing.known_here_and_there()
            link.vanish()
            await sharing.goes_on(known)
            await sharing.become(State.DOWN)
            await sharing.goes_on(known)
            link.come_back()
            await sharing.become(State.UP)
            await sharing.shares()
            await sharing.goes_on(known)
            sharing.check_log([State.DOWN, State.UP], [State.SLOW, State.DOWN, State.UP])
