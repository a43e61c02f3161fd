"""Sessions by name and stored responses have one home, whichever router is asked, before and after restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from router.core.prompt import scope_hash, session_hash
from router.core.replica import IDLE
from router.proxy.openai import stored_object_hash
from router.sim.replica import SimReplica
from tests.redis_server import running_redis
from tests.rig.client import Answer, chat, request
from tests.rig.running import Router
from tests.rig.sharing import store_of
from tests.rig.stage import Stage
from tests.rig.talks import text

Together = Callable[[int, list[SimReplica]], Awaitable[list[Router]]]


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


@pytest.fixture(params=[None, "correct horse"], ids=["no-secret", "secret"])
async def together(stage: Stage, redis_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Together]:
    """Starts routers over the same replicas, each test under a prefix of its own."""
    prefix = f"homes-{abs(hash(request.node.name)) % 10**8}"

    async def start(count: int, replicas: list[SimReplica]) -> list[Router]:
        shared: dict[str, Any] = {"redis": redis_url, "redis_prefix": prefix, "redis_deadline_ms": 500}
        routers = [await stage.router(*replicas, redis_secret=request.param, **shared) for _ in range(count)]
        for router in routers:
            store = store_of(router)
            await router.until(lambda store=store: store.answers, "Redis is not reached")  # type: ignore[misc]
            await router.until(lambda store=store: len(store.peers) >= count - 1, "no router is heard")  # type: ignore[misc]
        return routers

    yield start


async def stop(routers: list[Router]) -> None:
    for router in routers:
        await router.idle()
        await router.stop()


async def ask(stage: Stage, router: Router, data: bytes) -> Answer:
    """Ask when all is quiet: against so short a prompt, what another router has just had prefilled would weigh much."""
    books = list(router.house.fleet)
    await router.until(lambda: all(book.peer_load == IDLE for book in books), "others' requests do not end")
    answer = await stage.ask(router, data)
    assert answer.status == 200, answer.body
    return answer


async def heard(router: Router, session: str, home: str | None) -> None:
    """Wait until a router knows where a session is: an engine's answer takes longer than that, a simulated one not."""
    key, homes = session_hash(scope_hash("sim-model"), session), router.house.fleet.index.homes
    await router.until(lambda: homes.get(key) == home, "it is not heard of")


def named(session: str, said: str = "go on", **fields: Any) -> bytes:
    return chat(said, headers=[("x-session-id", session)], **fields)


async def begin(stage: Stage, routers: list[Router], count: int) -> dict[str, str | None]:
    """Begin sessions, keyless and long ones in turn, through all routers; return where each lives."""
    homes: dict[str, str | None] = {}
    for number in range(count):
        said = text(number, 300) if number % 2 else "hello"
        answer = await ask(stage, routers[number % len(routers)], named(f"session-{number}", said))
        homes[f"session-{number}"] = answer.replica
    assert len(set(homes.values())) > 1, "they are spread"
    return homes


async def test_a_named_session_goes_on_at_home_through_the_other_router(stage: Stage, together: Together) -> None:
    routers = await together(2, await stage.replicas(4))
    for number in range(12):
        session, here = f"session-{number}", routers[number % 2]
        home = (await ask(stage, here, named(session, "hello" if number % 3 else text(number)))).replica
        await heard(routers[1 - number % 2], session, home)
        for turn in range(1, 5):
            answer = await ask(stage, routers[(number + turn) % 2], named(session, f"and {turn}?"))
            assert (answer.replica, answer.reason) == (home, "session")


async def test_the_other_router_knows_a_sessions_home_before_the_first_answer_is_over(
    stage: Stage, together: Together
) -> None:
    here, there = await together(2, await stage.replicas(4, time_scale=1.0))
    client = await stage.client(here)
    answer = await client.ask_head(named("session-1", stream=True, max_tokens=2_000))
    await heard(there, "session-1", answer.replica)
    assert here.in_flight, "it is still being answered"
    followed = await ask(stage, there, named("session-1"))
    assert (followed.replica, followed.reason) == (answer.replica, "session")


async def test_named_sessions_are_at_home_after_all_routers_restarted(stage: Stage, together: Together) -> None:
    replicas = await stage.replicas(4)
    routers = await together(2, replicas)
    homes = await begin(stage, routers, 10)
    for _ in range(2):
        await stop(routers)
        routers = await together(2, replicas)
        for number, (session, home) in enumerate(homes.items()):
            answer = await ask(stage, routers[number % 2], named(session))
            assert (answer.replica, answer.reason) == (home, "session")


async def store_responses(stage: Stage, routers: list[Router]) -> dict[str, str | None]:
    """Have a response stored on each replica; return where each is."""
    stored: dict[str, str | None] = {}
    for number in range(8):
        answer = await ask(
            stage,
            routers[number % len(routers)],
            request("/v1/responses", {"model": "sim-model", "input": f"Number {number}", "max_output_tokens": 4}),
        )
        stored[answer.json()["id"]] = answer.replica
    assert len(set(stored.values())) == 4
    return stored


async def find_responses(stage: Stage, routers: list[Router], stored: dict[str, str | None]) -> None:
    """Fetch and continue each through every router."""
    for response, home in stored.items():
        for router in routers:
            fetched = await ask(stage, router, request(f"/v1/responses/{response}"))
            assert (fetched.json()["id"], fetched.replica, fetched.reason) == (response, home, "pinned")
            body = {"model": "sim-model", "input": "And then?", "previous_response_id": response}
            continued = await ask(stage, router, request("/v1/responses", body | {"max_output_tokens": 4}))
            assert (continued.replica, continued.reason) == (home, "pinned")


async def test_stored_responses_are_found_through_the_other_router(stage: Stage, together: Together) -> None:
    routers = await together(2, await stage.replicas(4))
    stored = await store_responses(stage, routers)
    for router in routers:
        homes = router.house.fleet.index.homes
        await router.until(lambda homes=homes: all(stored_object_hash(one) in homes for one in stored), "not heard of")  # type: ignore[misc]
    await find_responses(stage, routers, stored)


async def test_stored_responses_are_found_after_all_routers_restarted(stage: Stage, together: Together) -> None:
    replicas = await stage.replicas(4)
    routers = await together(2, replicas)
    stored = await store_responses(stage, routers)
    await stop(routers)
    await find_responses(stage, await together(2, replicas), stored)


async def test_a_session_whose_home_is_gone_moves_once_and_the_other_router_follows(
    stage: Stage, together: Together
) -> None:
    replicas = await stage.replicas(4)
    routers = await together(2, replicas)
    homes = await begin(stage, routers, 12)
    gone = routers[0].id_of(replicas[0])
    assert gone in homes.values()
    await replicas[0].stop()
    for number, (session, home) in enumerate(homes.items()):
        here, there = routers[number % 2], routers[1 - number % 2]
        moved = await ask(stage, here, named(session))
        assert moved.replica != gone
        # Another router's request may have been heard of just now: waiting for it can cost more than this short prompt.
        assert home in (moved.replica, gone) or moved.reason == "spilled", (home, moved.replica, moved.reason)
        await heard(there, session, moved.replica)
        for router in (there, here, there):
            followed = await ask(stage, router, named(session))
            assert (followed.replica, followed.reason) == (moved.replica, "session")


async def test_a_session_whose_home_left_while_no_router_ran_moves_for_good(stage: Stage, together: Together) -> None:
    replicas = await stage.replicas(4)
    routers = await together(2, replicas)
    homes = await begin(stage, routers, 12)
    gone = routers[0].id_of(replicas[0])
    assert gone in homes.values()
    await stop(routers)
    routers = await together(2, replicas[1:])
    moved: dict[str, str | None] = {}
    for number, (session, home) in enumerate(homes.items()):
        answer = await ask(stage, routers[number % 2], named(session))
        assert answer.reason == ("failover" if home == gone else "session")
        moved[session] = answer.replica
        there = routers[1 - number % 2]
        await heard(there, session, answer.replica)
        followed = await ask(stage, there, named(session))
        assert (followed.replica, followed.reason) == (answer.replica, "session")
    await stop(routers)
    routers = await together(2, replicas)
    for number, (session, home) in enumerate(moved.items()):
        answer = await ask(stage, routers[number % 2], named(session))
        assert (answer.replica, answer.reason) == (home, "session"), "Redis has learnt of the move"
