"""Redis takes 200 ms each way: it is told and not asked, until it is quick again."""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names, store_of
from tests.rig.slow_link import SlowLink
from tests.rig.stage import Stage

DELAY_S = 0.2


async def test_requests_go_on_while_it_is_slow_and_it_is_asked_when_it_is_quick(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer() as server:
        async with SlowLink(server.port) as link:
            sharing = await Sharing.open(stage, caplog, *both_names(link.url))
            known = await sharing.known_here_and_there()
            link.delay_s = DELAY_S
            await sharing.goes_on(known)
            await sharing.become(State.SLOW)
            assert not any(store_of(router).answers for router in sharing.routers)
            await sharing.goes_on(known)
            link.delay_s = 0.0
            await sharing.become(State.UP)
            await sharing.shares()
            await sharing.goes_on(known)
            sharing.check_log([State.SLOW, State.UP])
