"""A stage with simulated replicas, scripted upstreams, routers and clients, for one test."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from router.app.settings.model import Settings
from router.sim.server import SimOptions, SimReplica
from tests.rig.client import Answer, Client
from tests.rig.running import HasPort, HasUrl, Router
from tests.rig.upstream import Script, ScriptedUpstream

FAST = SimOptions(time_scale=1_000.0)
"""A replica that answers within milliseconds."""


class Stage:
    """Starts things for one test and stops them at its end, clients first."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self._stack = stack
        self.routers: list[Router] = []
        self._clients: list[Client] = []

    async def replicas(self, count: int, **options: Any) -> list[SimReplica]:
        """Start simulated replicas, fast ones unless `time_scale` is given."""
        chosen = replace(FAST, **options)
        started = [await self._stack.enter_async_context(SimReplica(chosen)) for _ in range(count)]
        for replica in started:
            replica.peers = started
        return started

    async def replica(self, **options: Any) -> SimReplica:
        return (await self.replicas(1, **options))[0]

    async def upstream(self, script: Script) -> ScriptedUpstream:
        """Start an upstream that plays a script on each connection."""
        return await self._stack.enter_async_context(ScriptedUpstream(script))

    async def router(self, *replicas: HasUrl | str, watched: bool = False, **settings: Any) -> Router:
        """Start a router. Only a watched one reads metrics and models, so that a test sees its own requests alone.

        The request log is off unless a test asks for it: its lines would bury the failure they come with.
        """
        urls = tuple(replica if isinstance(replica, str) else replica.url for replica in replicas)
        router = Router(Settings(replica=urls, **({"log_requests": False} | settings)), watched)
        self._stack.push_async_callback(router.stop)
        await router.start()
        self.routers.append(router)
        return router

    async def client(self, server: HasPort, **options: Any) -> Client:
        """Open a connection to a router's client port, or to a replica."""
        client = await Client.open(server.port, **options)
        self._clients.append(client)
        return client

    async def ask(self, server: HasPort, data: bytes) -> Answer:
        """Send one request on a connection of its own."""
        client = await self.client(server)
        answer = await client.ask(data)
        client.leave()
        return answer

    async def clear(self) -> None:
        """Let all clients leave, and wait until no router counts anything in flight."""
        for client in self._clients:
            client.leave()
        for router in self.routers:
            await router.idle()
