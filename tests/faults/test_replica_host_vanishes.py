"""A replica's host vanishes: a machine loses its power, a node its network. No FIN comes, and no RST.

A request that meets it on a kept connection costs its client the connect time-out and goes elsewhere; so does one that
has to connect. A stream that has begun stands still: keep-alive probes end it after --vanish-timeout-s with an error
event, which is long before the limit on silence.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.faults.test_dies_mid_stream import events_until_cut
from tests.rig.client import DEADLINE_S, chat, request
from tests.rig.faulty_link import FaultyLink, connecting_to
from tests.rig.forms import FORMS
from tests.rig.running import Router
from tests.rig.stage import Stage

SOON_S = 1.0
CONNECT_S = 0.6


def has_half(replica: SimReplica) -> bool:
    return len(replica.requests) == 20


@contextlib.asynccontextmanager
async def behind_a_link(
    stage: Stage, replica: SimReplica, *others: SimReplica, connect_timeout_s: float = CONNECT_S
) -> AsyncIterator[tuple[FaultyLink, Router]]:
    """A router that reaches the first replica by a link, and the others directly."""
    limits: dict[str, Any] = {"vanish_timeout_s": SOON_S, "connect_timeout_s": connect_timeout_s}
    async with FaultyLink(replica.port) as link:
        yield link, await stage.router(link, *others, **limits)


@pytest.mark.parametrize("stream", [True, False])
async def test_while_idle_in_the_pool_it_costs_the_next_request_the_connect_time_out(
    stage: Stage, stream: bool
) -> None:
    gone, good = await stage.replicas(2)
    async with behind_a_link(stage, gone, good) as (link, router):
        client = await stage.client(router)
        assert (await client.ask(chat("a first one"))).replica == router.id_of(link)
        assert len(router.house.plane.pools[router.id_of(link)]) == 1
        link.vanish()
        while router.records.failed == []:
            answer = await client.ask(chat("and another", stream=stream))
            assert (answer.status, answer.replica) == (200, router.id_of(good))
        assert router.records.failed == [(router.id_of(link), "reset")]
        assert not router.books(link).health.up
        assert len(router.house.plane.pools[router.id_of(link)]) == 0, "no other request meets a dead connection"


async def test_many_kept_connections_to_it_cost_each_of_their_requests_no_more(stage: Stage) -> None:
    """They are met at the same time, and none of them is tried after another."""
    gone, good = await stage.replicas(2)
    async with behind_a_link(stage, gone, good) as (link, router):
        clients = [await stage.client(router) for _ in range(40)]
        gone.state.driver.freeze()
        good.state.driver.freeze()
        for client in clients:
            client.send(chat())
        for replica in (gone, good):
            await replica.wait_for(partial(has_half, replica), DEADLINE_S)
            replica.state.driver.thaw()
        assert {(await client.answer()).status for client in clients} == {200}
        assert len(router.house.plane.pools[router.id_of(link)]) == 20
        link.vanish()
        answers = await asyncio.gather(*(client.ask(chat(f"{number}")) for number, client in enumerate(clients)))
        assert {(answer.status, answer.replica) for answer in answers} == {(200, router.id_of(good))}
        assert {record.attempts for record in router.records.finished[40:]} <= {1, 2}


async def test_without_another_replica_the_client_is_told_to_try_again(stage: Stage) -> None:
    gone = await stage.replica()
    async with behind_a_link(stage, gone) as (link, router):
        client = await stage.client(router)
        assert (await client.ask(chat())).status == 200
        link.vanish()
        answer = await client.ask(chat())
        assert (answer.status, answer.error["code"]) == (503, "upstream_failed")


async def test_in_the_middle_of_a_stream_it_ends_with_an_error_event(stage: Stage) -> None:
    gone, good = await stage.replicas(2, time_scale=1.0)
    async with behind_a_link(stage, gone, good) as (link, router):
        client = await stage.client(router)
        client.send(chat(stream=True, max_tokens=50_000, ignore_eos=True))
        answer = await client.head()
        assert answer.replica == router.id_of(link)
        await client.chunk(answer)
        link.vanish()
        *_, last = await events_until_cut(client, answer)
        assert FORMS["chat"].error_of(last)["code"] == "upstream_died"
        await router.idle()
        record = router.records.finished[-1]
        assert (record.outcome, record.error) == ("died", "upstream_died")
        assert not router.books(link).health.up


async def test_during_a_prefill_its_request_goes_elsewhere(stage: Stage) -> None:
    """It has been acknowledged: there is nothing to send again, so only the probes can tell."""
    gone, good = await stage.replicas(2)
    gone.faults.set(Fault(FaultKind.HANG))
    async with behind_a_link(stage, gone, good) as (link, router):
        client = await stage.client(router)
        client.send(chat(stream=True))
        await gone.wait_for(lambda: bool(gone.requests) and gone.requests[0].complete, DEADLINE_S)
        link.vanish()
        answer = await client.answer()
        assert (answer.status, answer.replica, answer.reason) == (200, router.id_of(good), "failover")
        assert router.records.failed == [(router.id_of(link), "reset")]


async def test_in_the_middle_of_a_large_body(stage: Stage) -> None:
    """Part of it is acknowledged, and the rest is sent again and again."""
    gone, good = await stage.replicas(2)
    async with behind_a_link(stage, gone, good) as (link, router):
        client = await stage.client(router)
        client.send(request("/v1/audio/transcriptions", b"x" * (8 << 20)))
        await router.until(lambda: link.accepted == 1)
        link.vanish()
        answer = await client.answer()
        assert answer.replica == router.id_of(good)
        assert router.records.failed == [(router.id_of(link), "reset")]


async def test_a_host_that_comes_back_in_time_is_not_left(stage: Stage) -> None:
    """The first packet of a connection is lost: it is sent again after a second, and nobody is ejected for it."""
    replica, other = await stage.replicas(2)
    async with behind_a_link(stage, replica, other, connect_timeout_s=5.0) as (link, router):
        client = await stage.client(router)
        link.vanish()
        client.send(chat())
        await router.until(lambda: connecting_to(link.port) == 1, "no connection is asked for")
        link.come_back()
        assert (await client.answer()).replica == router.id_of(link)
    assert router.records.failed == []


async def test_its_probes_tell_before_any_request_does(stage: Stage) -> None:
    """As many in a row as are allowed, which nobody answers."""
    gone, good = await stage.replicas(2)
    async with FaultyLink(gone.port) as link:
        router = await stage.router(
            link,
            good,
            watched=True,
            health_interval_s=0.2,
            health_failures=2,
            connect_timeout_s=0.3,
            scrape_interval_s=0.2,
        )
        await router.until(lambda: router.books(link).report.running is not None)
        link.vanish()
        await router.until(lambda: not router.books(link).health.up, "no probe tells")
        client = await stage.client(router)
        for _ in range(4):
            assert (await client.ask(chat())).replica == router.id_of(good)
        assert router.records.failed == [], "no client met it"
        link.come_back()
        await router.until(lambda: router.books(link).health.up, "it is not used again")
