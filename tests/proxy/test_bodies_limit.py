"""All bodies in memory have one budget: who would take more than is left is told to come again, the largest first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.proxy.bodies import Bodies
from router.sim.faults import Fault, FaultKind
from tests.rig.client import CHAT, DEADLINE_S, Client, chat, chunked, request
from tests.rig.running import Router
from tests.rig.stage import Stage

MIB = 1 << 20


def part(size: int, announced: int = 64 * MIB) -> bytes:
    """A request of which so many bytes of the body have come, and more are announced."""
    head = request(CHAT, b"", headers=[("content-length", str(announced)), ("content-type", "application/json")])
    return head + b"x" * size


async def tight(stage: Stage, *replicas: object, **settings: object) -> Router:
    """A router whose bodies may take 4 MiB together and 2 each."""
    return await stage.router(*replicas, max_bodies_bytes=4 * MIB, max_body_bytes=2 * MIB, **settings)  # type: ignore[arg-type]


async def held(router: Router, size: int) -> None:
    await router.until(lambda: router.house.plane.bodies.held_bytes == size, f"{router.house.plane.bodies.held_bytes}")


async def fill(stage: Stage, router: Router, *sizes: int) -> list[Client]:
    clients = [await stage.client(router) for _ in sizes]
    total = router.house.plane.bodies.held_bytes
    for client, size in zip(clients, sizes, strict=True):
        client.send(part(size, 2 * MIB))
        total += size
        await held(router, total)
    return clients


@given(st.lists(st.integers(1, 1_000), max_size=50), st.integers(1, 1_000))
def test_what_is_held_is_within_the_limit_if_the_crowded_out_leave(sizes: list[int], limit: int) -> None:
    bodies = Bodies(limit)
    for size in sizes:
        bodies.held_bytes += size
        if bodies.crowd_out(size):
            bodies.held_bytes -= size
        assert bodies.held_bytes <= limit


def test_a_body_may_take_as_much_as_is_left() -> None:
    bodies = Bodies(100)
    bodies.held_bytes = 70
    assert not bodies.crowd_out(30)
    assert bodies.crowd_out(31)


async def test_a_body_that_takes_more_than_is_left_is_told_to_come_again(stage: Stage) -> None:
    replica = await stage.replica()
    router = await tight(stage, replica)
    await fill(stage, router, MIB, MIB)
    third = await stage.client(router)
    third.send(part(MIB + 1, 2 * MIB))
    answer = await third.answer()
    assert (answer.status, answer.error["code"], answer.header("retry-after")) == (503, "bodies_full", "1")
    assert "max-bodies-bytes" in answer.error["message"]
    assert answer.header("connection") == "close"
    await third.closed()
    await held(router, 2 * MIB)
    assert (await stage.ask(router, chat())).status == 200, "a small one still passes"
    assert len(replica.requests) == 1


async def test_room_that_is_given_back_is_taken_again(stage: Stage) -> None:
    replica = await stage.replica()
    router = await tight(stage, replica)
    first, second = await fill(stage, router, MIB, MIB)
    first.leave()
    await held(router, MIB)
    second.reset()
    await held(router, 0)
    assert (await stage.ask(router, request(CHAT, b" " * (MIB * 2)))).status != 503


async def test_a_body_is_held_until_its_answer_begins(stage: Stage) -> None:
    replica = await stage.replica()
    router = await tight(stage, replica)
    data = chat(stream=True, max_tokens=20, ignore_eos=True)
    size = len(data.partition(b"\r\n\r\n")[2])
    replica.faults.set(Fault(FaultKind.HANG, count=1))
    client = await stage.client(router)
    client.send(data)
    await replica.wait_for(lambda: len(replica.requests) == 1, DEADLINE_S)
    assert router.house.plane.bodies.held_bytes == size
    client.leave()
    await held(router, 0)
    other = await stage.client(router)
    answer = await other.ask_head(data)
    assert answer.status == 200
    assert router.house.plane.bodies.held_bytes == 0, "nothing can be sent again once an answer has begun"
    await other.rest(answer)


async def test_a_chunked_body_behind_another_request_is_answered_in_its_turn(stage: Stage) -> None:
    replica = await stage.replica()
    router = await tight(stage, replica)
    await fill(stage, router, MIB, MIB, MIB)
    client = await stage.client(router)
    replica.faults.set(Fault(FaultKind.HANG, count=1))
    client.send(chat())
    await replica.wait_for(lambda: len(replica.requests) == 1, DEADLINE_S)
    long = request(CHAT, chunked(b"x" * MIB, b"y" * (MIB // 2)), headers=[("transfer-encoding", "chunked")])
    client.send(long + chat("never read"))
    await router.until(lambda: router.house.plane.bodies.held_bytes < 3 * MIB + 4096)
    replica.faults.clear()
    replica.restart_cold()  # the request that hangs is tried again
    assert (await client.answer()).status in (200, 503)
    refused = await client.answer()
    assert (refused.status, refused.error["code"]) == (503, "bodies_full")
    await client.closed()
    assert all(b"never read" not in arrival.body for arrival in replica.requests)


@pytest.mark.parametrize("end", ["leave", "reset"])
async def test_requests_in_line_give_their_memory_back_when_their_client_goes(stage: Stage, end: str) -> None:
    replica = await stage.replica()
    router = await tight(stage, replica)
    replica.faults.set(Fault(FaultKind.HANG))
    client = await stage.client(router)
    client.send(chat() + request(CHAT, b"x" * 5_000) + request(CHAT, b"y" * 7_000) + part(9_000, 2 * MIB))
    await router.until(lambda: router.house.plane.bodies.held_bytes > 21_000)
    getattr(client, end)()
    await held(router, 0)


async def test_a_body_of_the_largest_size_always_passes_alone(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, max_bodies_bytes=MIB, max_body_bytes=3 * MIB)
    await stage.ask(router, request(CHAT, b'{"pad":"%b"}' % (b"x" * (3 * MIB - 10))))
    assert [len(arrival.body) for arrival in replica.requests] == [3 * MIB]
    await held(router, 0)


async def test_an_alias_changes_what_is_held(stage: Stage) -> None:
    replica = await stage.replica()
    router = await tight(stage, replica, alias=("short=sim-model",))
    assert (await stage.ask(router, chat(model="short"))).status == 200
    await held(router, 0)


async def test_the_metric_tells_what_is_held(stage: Stage) -> None:
    router = await tight(stage, await stage.replica())
    await fill(stage, router, 1_000)
    shown = (await (await router.admin()).get("/metrics")).text
    assert "\nwarmroute_bodies_bytes 1000.0\n" in shown
