"""200 clients whose heads and bodies come a byte at a time: bad networks, or an attack that wants all connections busy.

Others wait for none of them. A head has --head-timeout-s from its first byte, whatever comes of it; a body has
--body-timeout-s from one byte to the next, so that a slow upload is let finish and one that stopped is not waited for.
Either is answered 408, no replica hears of it, and nothing of it stays.
"""

from __future__ import annotations

from collections import Counter

from tests.rig.client import CHAT, Client, chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage

WRITERS = 200
HEAD_S, BODY_S = 20.0, 30.0


async def start(stage: Stage) -> Router:
    return await stage.router(await stage.replica(), head_timeout_s=HEAD_S, body_timeout_s=BODY_S)


async def writers(stage: Stage, router: Router, begin: bytes) -> list[Client]:
    """Clients that have sent this, and of which it has been read."""
    clients = [await stage.client(router) for _ in range(WRITERS)]
    for client in clients:
        client.send(begin)
    door = router.house.doorway.door
    await router.until(lambda: len(door.receiving) == WRITERS, "some are not read")
    return clients


class Byte:
    """Lets each client send one byte more, and waits until all have been read."""

    def __init__(self, router: Router, clients: list[Client], data: bytes) -> None:
        self._router = router
        self._clients = clients
        self._left = data

    async def go(self) -> None:
        receiving = self._router.house.doorway.door.receiving
        before = sum(connection._reads for connection in receiving)  # type: ignore[attr-defined]
        byte, self._left = self._left[:1], self._left[1:]
        for client in self._clients:
            client.send(byte)
        await self._router.until(
            lambda: sum(connection._reads for connection in receiving) == before + len(self._clients)  # type: ignore[attr-defined]
        )


def sweep(router: Router, later_s: float) -> None:
    """Look for slow clients as if it were later: no clock is waited for."""
    router.house.doorway.door.sweep(router.house.plane.clock() + later_s)


async def others_are_served(stage: Stage, router: Router) -> None:
    answer = await stage.ask(router, chat("somebody else", stream=True))
    assert answer.events()[-1] == "[DONE]"


async def all_408(clients: list[Client]) -> None:
    for client in clients:
        answer = await client.answer()
        assert (answer.status, answer.error["code"], answer.header("connection")) == (408, "request_timeout", "close")
        await client.closed()


async def test_heads_a_byte_at_a_time_end_when_their_time_is_over(stage: Stage) -> None:
    router = await start(stage)
    clients = await writers(stage, router, b"P")
    byte = Byte(router, clients, request(CHAT, b"{}")[1:])
    for number in range(9):
        await byte.go()
        sweep(router, 2 * number)
        await others_are_served(stage, router)
    assert len(router.house.doorway.door.receiving) == WRITERS
    sweep(router, HEAD_S + 1)
    await all_408(clients)
    assert not router.house.doorway.door.receiving
    (replica,) = router.house.fleet
    assert replica.health.up
    assert Counter(record.status for record in router.records.finished) == {200: 9, 408: WRITERS}


async def test_bodies_a_byte_at_a_time_have_all_the_time_they_need(stage: Stage) -> None:
    router = await start(stage)
    whole = chat("hello")
    clients = await writers(stage, router, whole[:-12])
    byte = Byte(router, clients, whole[-12:])
    for number in range(11):  # some four minutes
        sweep(router, 20 * number)
        await byte.go()
        if number % 3 == 0:
            await others_are_served(stage, router)
    for client in clients:
        client.send(whole[-1:])
    for client in clients:
        assert (await client.answer()).status == 200
    assert not router.house.doorway.door.receiving


async def test_bodies_that_stop_are_not_waited_for(stage: Stage) -> None:
    router = await start(stage)
    clients = await writers(stage, router, chat("hello")[:-12])
    byte = Byte(router, clients, chat("hello")[-12:])
    for _ in range(3):
        await byte.go()
    await others_are_served(stage, router)
    sweep(router, 0)
    sweep(router, BODY_S - 1)
    assert len(router.house.doorway.door.receiving) == WRITERS
    sweep(router, BODY_S + 1)
    await all_408(clients)
    assert not router.house.doorway.door.receiving
    assert not router.house.plane.active
    assert Counter(record.status for record in router.records.finished) == {200: 1, 408: WRITERS}


async def test_half_of_them_leave_and_nothing_of_theirs_stays(stage: Stage) -> None:
    router = await start(stage)
    clients = await writers(stage, router, chat("hello")[:-12])
    for client in clients[::2]:
        client.reset()
    door = router.house.doorway.door
    await router.until(lambda: len(door.receiving) == WRITERS // 2)
    for client in clients[1::2]:
        client.send(chat("hello")[-12:])
    for client in clients[1::2]:
        assert (await client.answer()).status == 200
    assert not door.receiving
