"""The client goes away, at any moment: its upstream request is closed at once, so that vLLM frees its blocks.

At once: before the router has answered another request that arrives afterwards.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import CHAT, DEADLINE_S, Client, chat, request
from tests.rig.forms import FORMS, Form
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer

LEAVES: dict[str, Callable[[Client], None]] = {"closed": Client.leave, "reset": Client.reset}
LONG: dict[str, Any] = {"max_tokens": 50_000, "ignore_eos": True}


def runs(replica: SimReplica, more_than: int) -> bool:
    return replica.engine.running > more_than


def rests(replica: SimReplica) -> bool:
    return replica.engine.running + replica.engine.waiting == 0


async def left_at_once(stage: Stage, router: Router, replica: SimReplica) -> None:
    """The replica's last request lost its client before another connection got an answer from the router."""
    await stage.ask(router, request("/livez"))
    await stage.ask(router, request("/livez"))
    arrival = replica.requests[-1]
    assert arrival.left_early
    assert not arrival.ended
    assert (replica.engine.running, replica.engine.waiting) == (0, 0)
    assert router.in_flight == {}
    record = router.records.finished[-1]
    assert record.outcome == "client-left"
    assert router.books(replica).health.up, "it is no fault of the replica"


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_during_a_silent_prefill(stage: Stage, form: Form, leave: Callable[[Client], None]) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    replica.state.driver.freeze()
    client = await stage.client(router)
    client.send(form.request(stream=True))
    await replica.wait_for(lambda: replica.engine.next_event_s() is not None, 5.0)
    await router.until(lambda: bool(router.in_flight))
    leave(client)
    await left_at_once(stage, router, replica)


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
async def test_before_the_head_of_the_answer(stage: Stage, leave: Callable[[Client], None]) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(replica)
    client = await stage.client(router)
    client.send(chat())
    await replica.wait_for(lambda: bool(replica.requests) and replica.requests[0].complete, 5.0)
    leave(client)
    await left_at_once(stage, router, replica)
    assert router.records.finished[-1].status == 499


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_in_the_middle_of_a_stream(stage: Stage, form: Form, leave: Callable[[Client], None]) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    client = await stage.client(router)
    client.send(form.request(stream=True, max_tokens=50_000, ignore_eos=True))
    answer = await client.head()
    for _ in range(5):
        await client.chunk(answer)
    assert replica.engine.running == 1
    leave(client)
    await left_at_once(stage, router, replica)


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
async def test_while_an_answer_in_one_piece_is_made(stage: Stage, leave: Callable[[Client], None]) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    client = await stage.client(router)
    client.send(chat(**LONG))
    await replica.wait_for(lambda: replica.engine.running == 1, 5.0)
    leave(client)
    await left_at_once(stage, router, replica)


async def test_while_the_router_connects(stage: Stage) -> None:
    """The request is not sent once its client has gone; the connection may serve the next one."""
    replica = await stage.replica()
    router = await stage.router(replica)
    client = await stage.client(router)
    client.send(chat())
    client.reset()
    await router.idle()
    answer = await stage.ask(router, chat("still here"))
    assert answer.status == 200
    assert [arrival.left_early for arrival in replica.requests if b"hello there" in arrival.body] in ([], [True])


async def test_while_its_body_is_still_coming(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    client = await stage.client(router)
    client.send(request(CHAT, b'{"messages":', headers=[("content-length", "1000")]))
    await client.turn()
    client.leave()
    await stage.ask(router, request("/livez"))
    assert not replica.requests
    assert router.in_flight == {}
    assert not router.house.plane.active


async def test_while_a_retry_is_under_way(stage: Stage) -> None:
    bad, wedged = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    wedged.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(bad, wedged)
    client = await stage.client(router)
    client.send(chat())
    await wedged.wait_for(lambda: bool(wedged.requests), 5.0)
    client.leave()
    await left_at_once(stage, router, wedged)


async def test_while_an_error_answer_is_held_back(stage: Stage) -> None:
    """A 503 whose body has begun, and another replica would be asked at its end."""
    begun = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 503 Busy\r\ncontent-length: 100\r\n\r\n{")
        begun.set()
        await peer.gone()

    upstreams = [await stage.upstream(script) for _ in range(2)]
    router = await stage.router(*upstreams)
    client = await stage.client(router)
    client.send(chat())
    await begun.wait()
    client.leave()
    await router.idle()
    await upstreams[0].peers[0].left.wait()
    assert not upstreams[1].peers


async def test_behind_a_client_that_half_closes_nothing_is_left_running(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    client = await stage.client(router)
    client.send(chat(stream=True, **LONG))
    answer = await client.head()
    await client.chunk(answer)
    client.writer.write_eof()
    await replica.wait_for(lambda: replica.requests[0].left_early, 5.0)


async def test_a_hundred_clients_that_leave_together_leave_nothing_behind(stage: Stage) -> None:
    replicas = await stage.replicas(4, time_scale=1.0)
    router = await stage.router(*replicas)
    clients = [await stage.client(router) for _ in range(100)]
    for number, client in enumerate(clients):
        client.send(chat(f"{number} " * 100, stream=bool(number % 3), **LONG))
    for replica in replicas:
        await replica.wait_for(partial(runs, replica, 15), DEADLINE_S)
    for number, client in enumerate(clients):
        list(LEAVES.values())[number % 2](client)
    await router.idle()
    for replica in replicas:
        await replica.wait_for(partial(rests, replica), DEADLINE_S)
    assert {record.outcome for record in router.records.finished} == {"client-left"}


async def test_a_connection_whose_client_left_is_never_used_again(stage: Stage) -> None:
    """Its answer is still coming: it would be taken for that of the next request."""
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    for _ in range(3):
        client = await stage.client(router)
        client.send(chat(stream=True, **LONG))
        await client.chunk(await client.head())
        client.leave()
        await router.idle()
        assert (await stage.ask(router, chat("next"))).json()["object"] == "chat.completion"
