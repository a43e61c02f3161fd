"""A client's host vanishes: a lid is closed, a cable pulled, a NAT forgets. No FIN comes, and no RST.

Its user sees nothing, being gone. But its engine computes for nobody and holds its blocks until the router gives up: a
stream that goes on after --vanish-timeout-s without any acknowledgement, and one that waits for its first byte after as
long without an answer to keep-alive probes. Linux alone would take 15 minutes, and for ever while nothing is sent.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from router.sim.faults import Fault, FaultKind
from tests.e2e.test_queue import Full
from tests.rig.client import DEADLINE_S, chat, request
from tests.rig.faulty_link import FaultyLink
from tests.rig.served import serving
from tests.rig.stage import Stage

LONG: dict[str, Any] = {"max_tokens": 50_000, "ignore_eos": True}
SOON_S = 1.0
"""The shortest limit: a second without a sign, as the kernel counts."""


async def test_in_the_middle_of_a_stream_its_engine_is_freed(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica, vanish_timeout_s=SOON_S)
    async with FaultyLink(router.port) as link:
        gone, other = await stage.client(link), await stage.client(router)
        gone.send(chat(stream=True, **LONG))
        await gone.chunk(await gone.head())
        other.send(chat(stream=True, **LONG))
        stays = await other.head()
        link.vanish()
        await replica.wait_for(lambda: replica.requests[0].left_early, DEADLINE_S)
        await router.until(lambda: bool(router.records.finished))
        (record,) = router.records.finished
        assert (record.outcome, record.status) == ("client-left", 200)
        assert router.books(replica).health.up, "it is no fault of the replica"
        assert replica.engine.running == 1
        assert await other.chunk(stays), "nobody else is cut"


async def test_during_a_silent_prefill_nothing_is_sent_and_it_is_noticed_all_the_same(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(replica, vanish_timeout_s=SOON_S)
    async with FaultyLink(router.port) as link:
        gone = await stage.client(link)
        gone.send(chat(stream=True))
        await replica.wait_for(lambda: bool(replica.requests) and replica.requests[0].complete, DEADLINE_S)
        link.vanish()
        await replica.wait_for(lambda: replica.requests[0].left_early, DEADLINE_S)
        await router.idle()
        assert router.records.finished[-1].outcome == "client-left"


async def test_in_the_queue_it_gives_its_place_away(stage: Stage) -> None:
    full = await Full.of(stage, vanish_timeout_s=SOON_S)
    async with FaultyLink(full.router.port) as link:
        gone = await stage.client(link)
        gone.send(chat("gone"))
        await full.router.until(lambda: full.held == 1, "it does not wait")
        (staying,) = await full.wait_with(chat("staying"))
        link.vanish()
        await full.router.until(lambda: full.held == 1, "it still waits")
        full.go()
        assert (await staying.answer()).status == 200
        assert full.arrived() == ["staying"]


async def test_a_client_that_waits_for_as_long_and_is_there_gets_its_answer(stage: Stage) -> None:
    """Nothing goes either way for several limits but the probes, which its kernel answers."""
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.SLOW_HEADERS, delay_s=2.5 * SOON_S))
    router = await stage.router(replica, vanish_timeout_s=SOON_S)
    async with FaultyLink(router.port) as link:
        assert (await (await stage.client(link)).ask(chat())).status == 200


async def test_a_short_absence_costs_nothing(stage: Stage) -> None:
    """Back before the limit: what was lost is sent again, and the stream is whole."""
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica)
    async with FaultyLink(router.port) as link:
        client = await stage.client(link)
        client.send(chat(stream=True, max_tokens=40, ignore_eos=True))
        answer = await client.head()
        await client.chunk(answer)
        link.vanish()
        (exchange,) = router.house.plane.active
        await router.until(lambda: exchange not in router.house.plane.active, "the engine does not end")
        link.come_back()
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
    assert router.records.finished[-1].outcome == "completed"


async def test_where_nobody_is_asked_for_anything_the_port_s_own_options_do_it() -> None:
    """What `serve` listens on has the probes on: all connections inherit them, those of the admin port too."""
    async with serving("--vanish-timeout-s", "30") as served:
        for port in (served.port, served.admin_port):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(request("/livez"))
                assert client.recv(100).startswith(b"HTTP/1.1 200")
                assert timer_of(port, client.getsockname()[1]) == "02", "no keep-alive timer runs"


def timer_of(port: int, client_port: int) -> str:
    """Which timer runs for a connection, as its server's side has it: 02 is that of keep-alive (proc(5))."""
    ends = [f"0100007F:{end:04X}" for end in (port, client_port)]
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (found,) = [fields for fields in lines if fields[1:3] == ends]
    return found[5].partition(":")[0]
