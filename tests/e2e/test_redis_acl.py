"""The access list that the docs give is enough, and sharing works under it."""

from __future__ import annotations

import contextlib
import re

import redis

from router.adapters.redis_store.store import RedisStore
from router.core.types import Reason
from tests.contract.pages import DOCS
from tests.redis_server import running_redis
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.stage import Stage

PAGE = DOCS / "how-to" / "more-than-one-router.md"
STORY = "The keeper of the lighthouse wrote down every ship that passed. " * 40


def store(router: Router) -> RedisStore:
    assert router.house.store is not None
    return router.house.store


async def test_a_user_with_the_rights_that_the_docs_name_is_enough(stage: Stage) -> None:
    (command,) = re.findall(r"^ACL SETUSER .*$", PAGE.read_text(), re.MULTILINE)
    replicas = await stage.replicas(3)
    with running_redis() as url, contextlib.closing(redis.Redis.from_url(url)) as client:
        client.execute_command(*command.split())
        limited = url.replace("redis://", "redis://warmroute:password@")
        routers = [await stage.router(*replicas, redis=limited, redis_deadline_ms=500) for _ in range(2)]
        for router in routers:
            await router.until(lambda router=router: len(store(router).peers) == 1, "no router is heard")  # type: ignore[misc]
        homes = set()
        for number in range(4):
            answer = await stage.ask(routers[number % 2], chat(STORY, headers=[("x-session-id", "acl")]))
            homes.add(answer.replica)
        assert len(homes) == 1
        await routers[0].until(lambda: not len(store(routers[0]).outbox) and not len(store(routers[1]).outbox))
        assert [store(router).state for router in routers] == ["up", "up"]
        assert len(client.keys("*:t:*")) >= 1
        for router in routers:
            await router.idle()
            await router.stop()
        late = await stage.router(*replicas, redis=limited, redis_deadline_ms=500)
        answer = await stage.ask(late, chat(STORY, headers=[("x-session-id", "acl")]))
        assert (answer.replica, answer.reason) == (*homes, Reason.WARM)
        await late.idle()
        await late.stop()
