"""Redis has no memory left and lets nothing go: it refuses to write, until it has some again."""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_requests_go_on_while_it_refuses_and_are_shared_when_it_has_room(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer("--maxmemory-policy", "noeviction") as server:
        sharing = await Sharing.open(stage, caplog, *both_names(server.url))
        known = await sharing.known_here_and_there()
        server.ask("CONFIG", "SET", "maxmemory", "1")
        await sharing.goes_on(known)
        await sharing.become(State.REFUSING)
        await sharing.goes_on(known)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        sharing.check_log([State.REFUSING, State.UP])
