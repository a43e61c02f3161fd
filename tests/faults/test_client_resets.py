"""A client's connection is reset (RST), at each phase of a request: its process was killed, its phone lost the network.

Whatever runs for it upstream is closed, it leaves the queue, nothing stays counted, and no replica is blamed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from router.sim.replica import SimReplica
from tests.e2e.test_queue import Full
from tests.rig.client import CHAT, DEADLINE_S, Client, chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage

LONG = chat("a long answer", stream=True, max_tokens=50_000, ignore_eos=True)
HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()


async def coming_in(router: Router) -> None:
    await router.until(lambda: bool(router.house.doorway.door.receiving), "nothing is coming in")


async def within_the_head(client: Client, router: Router, replica: SimReplica) -> None:
    client.send(HEAD)
    await coming_in(router)


async def behind_the_head(client: Client, router: Router, replica: SimReplica) -> None:
    client.send(HEAD + b"content-length: 100\r\n\r\n")
    await coming_in(router)


async def within_the_body(client: Client, router: Router, replica: SimReplica) -> None:
    client.send(HEAD + b'content-length: 100000\r\n\r\n{"model": "sim-model"')
    await coming_in(router)


async def within_a_chunk_of_the_body(client: Client, router: Router, replica: SimReplica) -> None:
    client.send(HEAD + b'transfer-encoding: chunked\r\n\r\n40\r\n{"model": "sim-model"')
    await coming_in(router)


async def before_any_byte(client: Client, router: Router, replica: SimReplica) -> None:
    await router.until(lambda: bool(router.house.plane.idle), "it is not accepted")


async def between_two_requests(client: Client, router: Router, replica: SimReplica) -> None:
    assert (await client.ask(chat())).status == 200


WITHOUT_A_REQUEST: dict[str, Callable[[Client, Router, SimReplica], Awaitable[None]]] = {
    "before any byte": before_any_byte,
    "within the head": within_the_head,
    "behind the head": behind_the_head,
    "within the body": within_the_body,
    "within a chunk of the body": within_a_chunk_of_the_body,
    "between two requests": between_two_requests,
}


@pytest.mark.parametrize("phase", WITHOUT_A_REQUEST.values(), ids=WITHOUT_A_REQUEST)
async def test_before_there_is_a_request_no_replica_hears_of_it(
    stage: Stage, phase: Callable[[Client, Router, SimReplica], Awaitable[None]]
) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    client = await stage.client(router)
    await phase(client, router, replica)
    before = len(replica.requests)
    client.reset()
    door, plane = router.house.doorway.door, router.house.plane
    await router.until(lambda: not door.receiving and not plane.idle and not plane.active, "it is still waited for")
    assert len(replica.requests) == before
    assert router.in_flight == {}
    assert router.books(replica).health.up
    assert (await stage.ask(router, chat())).status == 200


async def prefilling(stage: Stage, client: Client, router: Router, replica: SimReplica) -> None:
    replica.state.driver.freeze()
    client.send(LONG)
    await replica.wait_for(lambda: replica.engine.next_event_s() is not None, DEADLINE_S)


async def streaming(stage: Stage, client: Client, router: Router, replica: SimReplica) -> None:
    client.send(LONG)
    await client.chunk(await client.head())


async def not_reading(stage: Stage, client: Client, router: Router, replica: SimReplica) -> None:
    """Bytes for it have come, and lie unread in its kernel: it is then that closing a socket sends a RST by itself."""
    client.send(LONG)
    answer = await client.head()
    for _ in range(20):
        await client.chunk(answer)


async def pipelined(stage: Stage, client: Client, router: Router, replica: SimReplica) -> None:
    client.send(LONG + chat("the next one") + request("/v1/models"))
    await client.chunk(await client.head())


RUNNING: dict[str, Callable[[Stage, Client, Router, SimReplica], Awaitable[None]]] = {
    "silent prefill": prefilling,
    "mid-stream": streaming,
    "not reading": not_reading,
    "others pipelined behind": pipelined,
}


@pytest.mark.parametrize("phase", RUNNING.values(), ids=RUNNING)
async def test_under_way_its_engine_is_freed(
    stage: Stage, phase: Callable[[Stage, Client, Router, SimReplica], Awaitable[None]]
) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    client = await stage.client(router)
    await phase(stage, client, router, replica)
    client.reset()
    await replica.wait_for(lambda: replica.requests[0].left_early, DEADLINE_S)
    await router.idle()
    assert (replica.engine.running, replica.engine.waiting) == (0, 0)
    assert len(replica.requests) == 1, "nothing of what stood behind it is made"
    assert [record.outcome for record in router.records.finished] == ["client-left"]
    assert router.in_flight == {}
    assert router.books(replica).health.up
    assert len(router.house.plane.pools[router.id_of(replica)]) == 0, "its answer is still coming on that connection"


async def test_in_the_queue_it_gives_its_place_away(stage: Stage) -> None:
    full = await Full.of(stage)
    leaving, staying = await full.wait_with(chat("leaving"), chat("staying"))
    leaving.reset()
    await full.router.until(lambda: full.held == 1, "it still waits")
    full.go()
    assert (await staying.answer()).status == 200
    await full.router.idle()
    assert full.arrived() == ["staying"]
    outcomes = sorted((record.status or 0, str(record.outcome)) for record in full.router.records.finished)
    assert outcomes[0][0] == 200
    assert outcomes[-1][0] == 499


async def test_a_thousand_at_all_phases_leave_nothing_behind(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    whole = chat("hello", stream=True, max_tokens=8)
    cuts = range(0, len(whole) + 1, 7)

    async def cut_off(size: int) -> None:
        client = await Client.open(router.port)
        client.send(whole[:size])
        await client.turn()
        client.reset()

    for _ in range(1_000 // len(cuts)):
        await asyncio.gather(*(cut_off(size) for size in cuts))
    door, plane = router.house.doorway.door, router.house.plane
    await router.until(lambda: not door.receiving and not plane.idle and not plane.active)
    await router.idle()
    assert router.books(replica).health.up
    assert (await stage.ask(router, chat())).status == 200
