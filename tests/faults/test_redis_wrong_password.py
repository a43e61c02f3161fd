"""The password is wrong, from the start or all at once: requests go on, and it is never logged."""

import pytest

from router.adapters.redis_store.state import State
from tests.redis_server import RedisServer
from tests.rig.sharing import Sharing, both_names
from tests.rig.stage import Stage

SECRET = "gull-and-buoy"


def with_password(server: RedisServer, password: str) -> tuple[str, str]:
    return both_names(server.url.replace("//", f"//:{password}@"))


async def test_a_password_that_is_wrong_at_the_start_and_then_right(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer("--requirepass", "another") as server:
        admin = server.client(password="another")
        sharing = await Sharing.open(stage, caplog, *with_password(server, SECRET))
        known = await sharing.known()
        await sharing.become(State.REFUSING)
        await sharing.goes_on(known)
        admin.config_set("requirepass", SECRET)
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        sharing.check_log([State.REFUSING, State.UP])
        assert SECRET not in caplog.text


async def test_a_password_that_is_changed(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer("--requirepass", SECRET) as server:
        admin = server.client(password=SECRET)
        sharing = await Sharing.open(stage, caplog, *with_password(server, SECRET))
        known = await sharing.known_here_and_there()
        admin.config_set("requirepass", "another")
        for kind in ("normal", "pubsub"):
            admin.client_kill_filter(_type=kind, skipme=True)
        await sharing.goes_on(known)
        await sharing.become(State.REFUSING)
        await sharing.goes_on(known)
        admin.config_set("requirepass", SECRET)
        await sharing.become(State.UP)
        await sharing.shares()
        await sharing.goes_on(known)
        # That its connections were lost may be seen first.
        sharing.check_log([State.REFUSING, State.UP], [State.DOWN, State.REFUSING, State.UP])
        assert SECRET not in caplog.text
