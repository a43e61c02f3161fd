"""write.lua in a real redis-server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
import redis

from router.adapters.redis_store.address import parse
from router.adapters.redis_store.encoding import WRITE_SCRIPT, Operation, encode, home
from router.adapters.redis_store.options import Options
from router.adapters.redis_store.state import State
from router.adapters.redis_store.store import LEAST_CHANCE, LEAST_KEEP_S, RedisStore
from router.core.curves import ReturnClass
from router.core.types import Outcome, OutcomeKind, RoutingRequest, Usage
from tests.core.worlds import chat, fleet_of
from tests.redis_server import running_redis
from tests.rig.sharing import eventually

TTL_S = 600
KEY = b"{test}:1:t:key"
MAX_HOLDERS = 16
decode = msgspec.msgpack.decode


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        yield client


def run(server: redis.Redis, *operations: tuple[bytes, Operation], ttl_s: int = TTL_S) -> list[Any]:
    keys = [key for key, _ in operations]
    packed = encode([operation for _, operation in operations])
    keep_s = encode([ttl_s] * len(keys))
    kept: Any = server.execute_command("EVAL", WRITE_SCRIPT, len(keys), *keys, packed, ttl_s, keep_s)
    return list(kept)


def holds(replica: str, prompt: int = 0, answer: int = 0, start: int = 5, rest: int = 0, check: int = 0) -> Operation:
    return "held", replica, start, prompt, answer, rest, check


def value(server: redis.Redis, key: bytes = KEY) -> Any:
    data: Any = server.get(key)
    return decode(data)


def names(server: redis.Redis) -> list[str]:
    return [holder[0] for holder in value(server)[4]]


def clock_s(server: redis.Redis) -> int:
    seconds: Any = server.time()
    return int(seconds[0])


def put(server: redis.Redis, *holders: tuple[str, int], end: tuple[int, int, int, int] = (0, 0, 0, 0)) -> None:
    """Store what an earlier run would have left: holders with the time of their last use."""
    server.set(KEY, encode([*end, [(replica, 5, used_s) for replica, used_s in holders]]))


# Landmarks


def test_a_holder_is_written_with_its_engines_start_and_the_time(server: redis.Redis) -> None:
    before_s = clock_s(server)
    assert run(server, (KEY, holds("r0", 640, 48, 1_700_000_000, 9, 2**48 - 1))) == []
    prompt, answer, rest, check, [[replica, start_s, used_s]] = value(server)
    assert (prompt, answer, rest, check) == (640, 48, 9, 2**48 - 1)
    assert (replica, start_s) == ("r0", 1_700_000_000)
    assert before_s <= used_s <= clock_s(server)


def test_holders_are_merged_newest_first_each_once(server: redis.Redis) -> None:
    for replica in ("r0", "r1", "r2", "r1"):
        run(server, (KEY, holds(replica)))
    assert names(server) == ["r1", "r2", "r0"]
    run(server, (KEY, holds("r0", start=99)))
    assert names(server) == ["r0", "r1", "r2"]
    assert value(server)[4][0][1] == 99, "it holds it since its last start"


def test_the_newest_sixteen_are_kept(server: redis.Redis) -> None:
    for number in range(MAX_HOLDERS + 5):
        run(server, (KEY, holds(f"r{number}")))
    assert names(server) == [f"r{number}" for number in reversed(range(5, MAX_HOLDERS + 5))]


def test_holders_that_have_not_used_it_for_as_long_as_it_is_kept_are_dropped(server: redis.Redis) -> None:
    now_s = clock_s(server)
    put(server, ("fresh", now_s - 1), ("older", now_s - TTL_S + 60), ("old", now_s - TTL_S), ("oldest", 0))
    run(server, (KEY, holds("r0")))
    assert names(server) == ["r0", "fresh", "older"]


def test_a_landmark_that_is_shared_does_not_hide_that_a_turn_ended_there(server: redis.Redis) -> None:
    run(server, (KEY, holds("r0", 640, 48, rest=9, check=77)))
    run(server, (KEY, holds("r1")))
    assert value(server)[:4] == [640, 48, 9, 77]
    assert names(server) == ["r1", "r0"]
    run(server, (KEY, holds("r1", 641, 50, rest=3, check=78)))
    assert value(server)[:4] == [641, 50, 3, 78]


GARBAGE = {
    "empty": b"",
    "text": b"hello world",
    "not-msgpack": b"\xc1\xff\xff",
    "number": encode(5),
    "string": encode("12345"),
    "nil": encode(None),
    "map": encode({"a": 1}),
    "too-few": encode([1, 2]),
    "holders-are-a-number": encode([1, 2, 3, 4, 5]),
    "holders-are-nil": encode([1, 2, 3, 4, None]),
    "holders-are-numbers": encode([1, 2, 3, 4, [5, 6]]),
    "holder-without-time": encode([1, 2, 3, 4, [["r1", 5]]]),
    "holder-with-a-text-for-time": encode([1, 2, 3, 4, [["r1", 5, "never"]]]),
    "counts-are-texts": encode(["a", "b", "c", "d", []]),
    "counts-are-nil": encode([None, None, None, None, []]),
    "truncated": encode([1, 2, 3, 4, [["r1", 5, 6]]])[:-1],
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_value_that_is_garbage_is_replaced(server: redis.Redis, kind: str) -> None:
    server.set(KEY, GARBAGE[kind])
    beside = b"{test}:1:t:beside"
    assert run(server, (KEY, holds("r0")), (beside, holds("r0", 640, 48))) == []
    assert value(server)[:4] == [0, 0, 0, 0]
    assert names(server) == ["r0"]
    assert value(server, beside)[0] == 640, "what came in the same batch is written"


# Homes


def home_of(server: redis.Redis, key: bytes = KEY) -> Any:
    return server.get(key)


@pytest.mark.parametrize(
    ("present", "expected", "kept"),
    [(None, None, False), (None, "r0", False), ("r0", "r0", False), ("r1", None, False), ("r1", "r0", False),
     ("r9", None, True), ("r9", "r0", True)],
    ids=["none-none", "none-gone", "expected", "same-unexpected", "same-instead", "other-unexpected", "other-instead"],
)  # fmt: skip
def test_a_home_is_compared_and_set(server: redis.Redis, present: str | None, expected: str | None, kept: bool) -> None:
    if present is not None:
        server.set(KEY, present)
    assert run(server, (KEY, home("r1", expected))) == ([1, present.encode()] if kept and present else [])
    assert home_of(server) == (b"r9" if kept else b"r1")


def test_homes_that_are_kept_are_told_with_the_numbers_of_their_operations(server: redis.Redis) -> None:
    one, two, three = b"{test}:1:h:1", b"{test}:1:h:2", b"{test}:1:h:3"
    server.mset({one: "r8", three: "r9"})
    operations = [(KEY, holds("r0")), (one, home("r1", None)), (two, home("r1", None)), (three, home("r1", "r0"))]
    assert run(server, *operations) == [2, b"r8", 4, b"r9"]
    assert [home_of(server, key) for key in (one, two, three)] == [b"r8", b"r1", b"r9"]


def test_of_two_re_pins_from_one_dead_home_the_first_wins(server: redis.Redis) -> None:
    server.set(KEY, "dead")
    assert run(server, (KEY, home("r1", "dead"))) == []
    assert run(server, (KEY, home("r2", "dead"))) == [1, b"r1"]
    assert home_of(server) == b"r1"


def test_every_key_expires_and_is_kept_for_longer_when_used(server: redis.Redis) -> None:
    pinned = b"{test}:1:h:1"
    for ttl_s in (100, TTL_S):
        run(server, (KEY, holds("r0")), (pinned, home("r0", None)), ttl_s=ttl_s)
        for key in (KEY, pinned):
            left_s: Any = server.ttl(key)
            assert ttl_s - 60 < left_s <= ttl_s


def test_a_home_that_stays_is_not_kept_for_longer_by_who_did_not_move_it(server: redis.Redis) -> None:
    server.set(KEY, "r9", ex=50)
    run(server, (KEY, home("r1", "r0")))
    left_s: Any = server.ttl(KEY)
    assert left_s <= 50


# Through two stores


async def test_two_routers_that_move_a_session_at_once_agree_on_one_home(redis_url: str, server: redis.Redis) -> None:
    """Both take their session away from a replica that died, each to another one, before it hears of the other."""
    session, options = 7, Options(parse(redis_url), prefix="race", secret="secret", deadline_s=0.5)
    request = RoutingRequest("m", "chat", None, 100, True, session, session_is_explicit=True)
    fleets = [fleet_of(3), fleet_of(3)]
    stores = [RedisStore(fleet, options, name, lambda: 1.0) for fleet, name in zip(fleets, "AB", strict=True)]
    for fleet, store, excluded in zip(fleets, stores, (["r0", "r1"], ["r0", "r2"]), strict=True):
        fleet.index.homes.put(session, "r0")
        ticket = fleet.route(request, 0.0, excluded)
        store.opened(ticket)
        fleet.first_byte(ticket, 0.1)
        outcome = Outcome(OutcomeKind.COMPLETED, 200, Usage(10, 0, 5, "stop"))
        store.settled(ticket, fleet.settle(ticket, outcome, 0.2))
    assert [fleet.index.homes.get(session) for fleet in fleets] == ["r2", "r1"]

    async def all_told() -> bool:
        return all(store.state is State.UP and not len(store.outbox) for store in stores)

    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Future[None]] = []
        for store in stores:
            # The sending loops alone: neither hears what the other has to say.
            tasks.append(asyncio.ensure_future(store._telling.tell_forever()))
            stack.push_async_callback(store.close)
        try:
            await eventually(all_told, "not all is told")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    homes = {fleet.index.homes.get(session) for fleet in fleets}
    keys: Any = server.keys("*:h:*")
    assert len(keys) == 1
    assert homes == {home_of(server, keys[0]).decode()}
    assert homes < {"r1", "r2"}


def test_each_key_is_kept_for_as_long_as_its_own_operation_says(server: redis.Redis) -> None:
    operations = [holds("a", 100, 10), holds("b", 200, 20), ("home", "a", None)]
    names_of = [KEY + b"1", KEY + b"2", KEY + b"3"]
    packed, keep_s = encode(operations), encode([60, 600, 300])
    server.execute_command("EVAL", WRITE_SCRIPT, 3, *names_of, packed, TTL_S, keep_s)
    assert [server.ttl(name) for name in names_of] == [60, 600, 300]


async def test_a_turn_that_nobody_will_go_on_with_is_forgotten_sooner_and_what_is_shared_is_not(
    redis_url: str, server: redis.Redis
) -> None:
    fleet = fleet_of(1)
    kind = ReturnClass.of("stop", 1, from_tool=False)
    for number in range(500):  # of five hundred first turns nobody has come back within a quarter of an hour
        fleet.returns.ended(number, kind, float(number))
    fleet.returns.came_back(-1, 20_000.0)
    assert fleet.returns.horizon_s(kind, LEAST_CHANCE) < LEAST_KEEP_S
    request = chat(("system", "shared " * 200), ("user", "x " * 600))
    assert request.prompt is not None
    store = RedisStore(fleet, Options(parse(redis_url), ttl_s=TTL_S, deadline_s=0.5), "one", lambda: 0.0)
    ticket = fleet.route(request, 0.0)
    outcome = Outcome(OutcomeKind.COMPLETED, 200, Usage(finish_reason="stop"))
    turn_end, shared = (store.names.turn(request.prompt.hashes[at]) for at in (-1, request.prompt.opening_blocks - 1))
    async with AsyncExitStack() as stack:
        telling = asyncio.ensure_future(store._telling.tell_forever())
        stack.push_async_callback(store.close)
        stack.callback(telling.cancel)
        store.opened(ticket)
        store.settled(ticket, fleet.settle(ticket, outcome, 0.0))

        async def both_are_written() -> bool:
            return server.exists(turn_end, shared) == 2

        await eventually(both_are_written, "not all is written")
    assert server.ttl(turn_end) == LEAST_KEEP_S
    assert server.ttl(shared) > LEAST_KEEP_S
