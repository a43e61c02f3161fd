"""The cluster gives our slot to another node: the routers follow."""

import pytest
from redis.crc import key_slot

from router.adapters.redis_store.state import State
from tests.redis_server import running_cluster
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage

PREFIX = "warmroute"
"""Of the keys, as the settings have it."""


async def test_requests_go_on_and_are_shared_through_the_new_node(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with running_cluster() as cluster:
        sharing = await Sharing.open(stage, caplog, *both_names(cluster.url))
        known = await sharing.known_here_and_there()
        slot = key_slot(PREFIX.encode())
        after = next(master for master in cluster.masters if master is not cluster.master_of(slot))
        await sharing.flushed_out()
        cluster.move(slot, after)
        await sharing.goes_on(known)
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        assert after.ask("DBSIZE") > 0
        sharing.check_log([State.REFUSING, State.UP])
