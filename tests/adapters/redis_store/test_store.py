"""The store between two fleets: nothing that comes up, or that somebody else puts into Redis, throws it off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import redis

from router.adapters.redis_store.address import parse
from router.adapters.redis_store.options import Options
from router.adapters.redis_store.outbox import BATCH
from router.adapters.redis_store.state import State
from router.adapters.redis_store.store import RedisStore
from router.app.roster.engines import keep_running
from router.core.fleet import Fleet
from router.core.landmarks import question
from router.core.types import Outcome, OutcomeKind, RoutingRequest
from tests.core.worlds import chat, fleet_of
from tests.redis_server import running_redis
from tests.rig.sharing import eventually


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@contextlib.asynccontextmanager
async def running(*stores: RedisStore) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.ensure_future(keep_running("sharing", loop)) for store in stores for loop in store.loops()]
    try:
        await until(lambda: all(store.state is State.UP and len(store.peers) == len(stores) - 1 for store in stores))
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for store in stores:
            await store.close()


def store_of(url: str, name: str, fleet: Fleet) -> RedisStore:
    options = Options(parse(url), prefix="store", deadline_s=0.5)
    return RedisStore(fleet, options, name, asyncio.get_running_loop().time)


async def until(holds: Callable[[], bool]) -> None:
    async def look() -> bool:
        return holds()

    await eventually(look, "it did not come true")


async def test_ends_that_wait_for_the_next_batch_are_not_settled_before(url: str) -> None:
    """Requests that never reached their engine leave nothing in a peer's mirrors, however many there are."""
    here, there = fleet_of(2), fleet_of(2)
    ours, theirs = store_of(url, "ours", here), store_of(url, "theirs", there)
    async with running(ours, theirs):
        tickets = [here.route(chat(("user", f"{number} " * 400)), 0.0) for number in range(2 * BATCH)]
        for ticket in tickets:
            ours.opened(ticket)
        for ticket in tickets:
            ours.settled(ticket, here.settle(ticket, Outcome(OutcomeKind.CLIENT_LEFT), 0.1))
        await until(lambda: not len(ours.outbox) and all(replica.last_chosen > 0 for replica in there))
        await until(lambda: all(not peer.open for _, peer in theirs.peers))
        assert [len(replica.mirror) for replica in (*here, *there)] == [0, 0, 0, 0]


async def test_a_home_that_is_no_text_ends_nothing(url: str) -> None:
    fleet = fleet_of(2)
    ours = store_of(url, "ours", fleet)
    request = RoutingRequest("m", "chat", None, 100, session=7, session_is_explicit=True)
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        async with running(ours) as tasks:
            asked = question(fleet, request)
            assert asked is not None
            client.set(ours.names.home(7), b"\xff\xfe")
            for _ in range(2):
                answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                ours.ask(asked, answered.set_result)
                assert await asyncio.wait_for(answered, 5) is False
            assert not any(task.done() for task in tasks)


async def test_news_that_comes_up_in_the_same_moment_is_sent_at_the_earlier_time(url: str) -> None:
    """uvloop gives timers of less than half a millisecond a handle that does not say when it is due."""
    here, there = fleet_of(2), fleet_of(2)
    ours, theirs = store_of(url, "ours", here), store_of(url, "theirs", there)
    async with running(ours, theirs):
        for number in range(50):
            ticket = here.route(chat(("user", f"{number} " * 400)), 0.0)
            ours.opened(ticket)
            ours.first_byte(ticket)
            ours.settled(ticket, here.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), 0.1))
            await until(lambda: not len(ours.outbox))
        await until(lambda: sum(len(replica.mirror) for replica in there) == sum(len(r.mirror) for r in here))
