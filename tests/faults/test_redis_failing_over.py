"""The master dies and the sentinels make its replica the master: the routers find it by themselves."""

import asyncio

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import SERVICE, running_sentinels
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_requests_go_on_and_are_shared_through_the_new_master(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with running_sentinels() as sentinels:
        sharing = await Sharing.open(stage, caplog, *both_names(sentinels.url))
        known = await sharing.known_here_and_there()
        sentinels.master.kill()
        await sharing.goes_on(known)
        await sharing.become(State.DOWN)
        await sharing.goes_on(known)
        await asyncio.to_thread(sentinels.wait_for_failover)
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        assert sentinels.replicas[0].ask("DBSIZE") > 0
        # The new master may be named before it takes writes.
        sharing.check_log([State.DOWN, State.UP], [State.DOWN, State.REFUSING, State.UP])


async def test_a_master_that_has_become_a_replica_is_left(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """By a failover on demand the old master lives on, keeps its connections and takes no writes."""
    with running_sentinels() as sentinels:
        sharing = await Sharing.open(stage, caplog, *both_names(sentinels.url))
        known = await sharing.known_here_and_there()
        sentinels.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE)
        await asyncio.to_thread(sentinels.wait_for_failover)
        # As the sentinels tell it some ten seconds later.
        sentinels.master.ask("REPLICAOF", "127.0.0.1", sentinels.master_port())
        await sharing.goes_on(known)
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        sharing.check_log([State.REFUSING, State.UP])
