"""Redis is stopped, so that it takes everything and answers nothing: nobody waits for it beyond the deadline."""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_requests_go_on_while_it_hangs_and_are_shared_when_it_goes_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer() as server:
        sharing = await Sharing.open(stage, caplog, *both_names(server.url))
        known = await sharing.known_here_and_there()
        server.stop()
        await sharing.goes_on(known)
        await sharing.become(State.DOWN)
        await sharing.goes_on(known)
        server.go_on()
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        # Whether enough questions were late before an answer was given up depends on the machine.
        sharing.check_log([State.DOWN, State.UP], [State.SLOW, State.DOWN, State.UP])
