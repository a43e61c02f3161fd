"""Redis is made a replica, which takes no writes, and a master again."""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_requests_go_on_while_it_takes_no_writes(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer() as server, RedisServer("--repl-diskless-sync-delay", "0") as master:
        sharing = await Sharing.open(stage, caplog, *both_names(server.url))
        known = await sharing.known_here_and_there()
        server.ask("REPLICAOF", "127.0.0.1", master.port)
        await sharing.goes_on(known)
        await sharing.become(State.REFUSING)
        await sharing.goes_on(known)
        server.ask("REPLICAOF", "NO", "ONE")
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        sharing.check_log([State.REFUSING, State.UP])
