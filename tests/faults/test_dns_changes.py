"""A name of the replicas changes its addresses, or is not resolved for a while, with chats and streams going on.

Users see nothing of it. A stream on an address that is gone from the name goes on to its end; whatever comes next goes
to the new ones. While no name server answers, the last list stays good, and one line of the log says so: an outage of
the DNS must not become one of the fleet.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import dns.rcode
import pytest

from router.adapters.discovery.source import open_source
from router.app.roster.following import source_loops
from router.app.roster.members import Roster
from router.sim.options import SimOptions
from router.sim.replica import SimReplica
from tests.adapters.discovery.name_server import NameServer
from tests.rig.client import chat
from tests.rig.load import load
from tests.rig.network import Network
from tests.rig.running import Router
from tests.rig.stage import FAST, Stage

NAME = "vllm.llm.svc.cluster.local."
PORT = 8080
LOOK_S = 0.05
"""Between two looks: long against a look itself, so that the end of a test seldom comes within one. uvloop has once
waited for ever, as its loop was closed, for the socket of a look that was cut off."""


class Named:
    """A router that looks for its replicas under a name, and engines on addresses of their own, all on one port."""

    def __init__(self, router: Router, names: NameServer) -> None:
        self.router = router
        self.names = names
        self.engines: dict[str, SimReplica] = {}
        """By address."""

    def say(self, *addresses: str) -> None:
        """Let the name have these addresses, from the next look on."""
        self.names.records[NAME, "A"] = list(addresses)

    async def known(self, *addresses: str) -> None:
        """Wait until these are the replicas."""
        urls = sorted(self.engines[address].url for address in addresses)
        found = self.router.house.endpoints
        await self.router.until(lambda: sorted(each.url for each in found.values()) == urls, f"not {urls}: {found}")


@contextlib.asynccontextmanager
async def named(stage: Stage, *addresses: str, options: SimOptions = FAST) -> AsyncIterator[Named]:
    async with contextlib.AsyncExitStack() as stack:
        names = await stack.enter_async_context(NameServer())
        router = await stage.router()
        found = Named(router, names)
        port = 0
        for address in addresses:
            engine = await stack.enter_async_context(SimReplica(options, host=address, port=port))
            found.engines[address], port = engine, engine.port
        source = open_source(f"dns:vllm:{port}", LOOK_S, resolvers=names.resolver)
        roster = Roster(router.house.roster._id_of, [source.name])
        house = dataclasses.replace(router.house, roster=roster, sources=(source,))
        loops = [asyncio.ensure_future(loop()) for loop in source_loops(house)]
        try:
            yield found
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await stage.clear()


async def test_chats_go_on_while_every_address_becomes_another(stage: Stage) -> None:
    async with named(stage, "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5") as fleet:
        fleet.say("127.0.0.2", "127.0.0.3")
        await fleet.known("127.0.0.2", "127.0.0.3")
        old = {fleet.router.id_of(fleet.engines[address]) for address in ("127.0.0.2", "127.0.0.3")}
        async with load(stage, fleet.router) as chats:
            for addresses in (("127.0.0.3", "127.0.0.4"), ("127.0.0.4", "127.0.0.5")):
                fleet.say(*addresses)
                await fleet.known(*addresses)
                begun = len(chats.answered)
                await fleet.router.until(lambda: len(chats.answered) > begun + 30)  # noqa: B023
            seen = {address: len(fleet.engines[address].requests) for address in ("127.0.0.2", "127.0.0.3")}
            begun = len(chats.answered)
            await fleet.router.until(lambda: len(chats.answered) > begun + 30)
        assert not old & set(chats.answered[-24:])
        for address, count in seen.items():
            assert len(fleet.engines[address].requests) == count, "asked after it was gone"
        assert not old & set(fleet.router.house.plane.pools), "connections are kept to an address that is gone"


async def test_a_stream_on_an_address_that_is_gone_ends_as_it_would(stage: Stage) -> None:
    async with named(stage, "127.0.0.2", "127.0.0.3", options=SimOptions()) as fleet:
        fleet.say("127.0.0.2")
        await fleet.known("127.0.0.2")
        client = await stage.client(fleet.router)
        client.send(chat(stream=True, max_tokens=60, ignore_eos=True))
        answer = await client.head()
        await client.chunk(answer)
        fleet.say("127.0.0.3")
        await fleet.known("127.0.0.3")
        other = await stage.ask(fleet.router, chat("the next one"))
        assert other.replica == fleet.router.id_of(fleet.engines["127.0.0.3"])
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        assert (await client.ask(chat("on the same connection"))).replica == other.replica


@pytest.mark.parametrize("codes", [[dns.rcode.SERVFAIL], [None], [dns.rcode.REFUSED]], ids=["fails", "mute", "refuses"])
async def test_while_nobody_resolves_it_the_last_addresses_serve_on_and_one_line_says_so(
    stage: Stage, caplog: pytest.LogCaptureFixture, codes: list[Any]
) -> None:
    caplog.set_level(logging.INFO, "warmroute")
    async with named(stage, "127.0.0.2", "127.0.0.3") as fleet:
        fleet.say("127.0.0.2", "127.0.0.3")
        await fleet.known("127.0.0.2", "127.0.0.3")
        async with load(stage, fleet.router) as chats:
            fleet.names.answers[NAME] = codes
            asked = len(fleet.names.asked)
            await fleet.router.until(lambda: len(fleet.names.asked) > asked + 2, "nobody asks any more")
            begun = len(chats.answered)
            await fleet.router.until(lambda: len(chats.answered) > begun + 30)
            await fleet.known("127.0.0.2", "127.0.0.3")
            fleet.names.answers.clear()
            fleet.say("127.0.0.3")
            await fleet.known("127.0.0.3")
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    lost, found = [line for line in lines if "dns:vllm" in line]
    assert "can't be read, its last list stays good" in lost
    assert found.endswith("can be read again")


async def test_a_replica_given_by_its_name_is_found_at_its_new_address() -> None:
    """`--replica http://engine:8000`: the name is looked up with each connection that is made."""
    warmroute, body = [sys.executable, "-m", "router"], '{"model":"sim-model","prompt":"hello","max_tokens":2}'
    async with Network() as network:
        client = await network.host("router")
        for number in (1, 2):
            engine = await network.host(f"engine-{number}", "engine")
            sim = await engine.start([*warmroute, "sim", "--host", "0.0.0.0", "--port", "8000", "--time-scale", "1000"])
            await sim.says("8000")
            if number == 1:
                router = await client.start([*warmroute, "serve", "--replica", "http://engine:8000"])
                await router.says("admin ")
            ask = ["curl", "-s", "--retry", "9", "--retry-delay", "1", "--retry-all-errors", "--fail-with-body"]
            asked = await client.run(
                [*ask, "-d", body, "-H", "content-type: application/json", "http://127.0.0.1:8080/v1/completions"]
            )
            assert '"text_completion"' in asked.out, (asked, router.written)
            await network.remove(engine)
