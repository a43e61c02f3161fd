"""The scripts are flushed: the routers bring theirs again, and nothing of what they write is lost."""

import pytest

from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage


async def test_no_write_is_lost_with_the_scripts(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer() as server:
        sharing = await Sharing.open(stage, caplog, *both_names(server.url))
        known = await sharing.known_here_and_there()
        await sharing.flushed_out()
        server.ask("SCRIPT", "FLUSH")
        await sharing.goes_on(known)
        await sharing.flushed_out()
        third = await sharing.third(server.url)
        for chat in known.values():
            await sharing.stays_warm(chat, third)
        await sharing.shares()
        sharing.check_log([])
