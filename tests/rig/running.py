"""A router on the test's own event loop: built as `warmroute serve` builds it, listening on a free port."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import httpx
import uvicorn

from router.app.admin.api import admin_app
from router.app.background import start_all, start_sharing
from router.app.house import House
from router.app.keeping import save
from router.app.public import public_app
from router.app.roster.following import first_lists
from router.app.settings.model import Settings
from router.app.wiring import build
from router.core.replica import Replica
from router.core.types import OutcomeKind, ReplicaId
from router.ports import Audience, RequestRecord
from router.proxy.downstream import downstream_class
from router.proxy.later import Later
from router.proxy.vanished import keep_alive
from router.sim.record import Changes
from tests.rig.client import DEADLINE_S

LOOK_S = 0.005
"""How often a condition is looked at that no event announces (a probe's result, a learnt rate)."""

_SERVER: dict[str, Any] = {
    "lifespan": "off", "access_log": False, "log_config": None, "server_header": False, "ws": "none"
}  # fmt: skip


class HasUrl(Protocol):
    @property
    def url(self) -> str: ...


class HasPort(Protocol):
    @property
    def port(self) -> int: ...


class _Listening:
    """uvicorn's server without its signals and its ten looks a second at whether to stop."""

    def __init__(self, config: uvicorn.Config, vanish_timeout_s: float) -> None:
        self._server = uvicorn.Server(config)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=2048)
        keep_alive(self._socket, vanish_timeout_s)
        self.port: int = self._socket.getsockname()[1]

    async def start(self) -> None:
        config = self._server.config
        config.load()
        self._server.lifespan = config.lifespan_class(config)
        await self._server.startup(sockets=[self._socket])

    async def stop(self) -> None:
        for listening in self._server.servers:
            listening.close()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)


class Records:
    """Wakes a waiting test and keeps what it was told, before whom it was meant for."""

    def __init__(self, audience: Audience, changes: Changes, later: Later) -> None:
        self._audience = audience
        self._later = later
        self._finished: list[RequestRecord] = []
        self.failed: list[tuple[ReplicaId, OutcomeKind]] = []
        self._changes = changes

    def requests_finished(self, records: Sequence[RequestRecord]) -> None:
        self._audience.requests_finished(records)
        self._finished += records
        self._changes.tell()

    @property
    def finished(self) -> list[RequestRecord]:
        """All requests that have ended."""
        self._later.flush()
        return self._finished

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        self._audience.attempt_failed(replica, kind)
        self.failed.append((replica, kind))
        self._changes.tell()


class Router:
    """A running router. `start` and `stop` are the fixture's."""

    def __init__(self, settings: Settings, watched: bool) -> None:
        self.house: House = build(settings)
        self._changes = Changes()
        plane = self.house.plane
        self.records = plane.audience = Records(plane.audience, self._changes, plane.later)
        self._watched = watched
        self._tasks: list[asyncio.Future[None]] = []
        self._servers: list[_Listening] = []
        self._admin: httpx.AsyncClient | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen; run the loops beside the data plane, of which an unwatched router has only the sweep."""
        plane = self.house.plane
        if self._watched:
            start_all(self.house, lambda loop: self._tasks.append(asyncio.ensure_future(loop)))
        else:
            self._tasks.append(asyncio.ensure_future(plane.sweep_forever()))
            start_sharing(self.house, lambda loop: self._tasks.append(asyncio.ensure_future(loop)))
        if self.house.store is not None:
            await self.house.store.tried()
        if self._watched:
            await first_lists(self.house)
        config = uvicorn.Config(
            public_app(self.house),
            http=downstream_class(plane, self.house.doorway.door),
            timeout_keep_alive=self.house.settings.keepalive_s,
            **_SERVER,
        )
        self.port = await self._listen(config)

    async def _listen(self, config: uvicorn.Config) -> int:
        server = _Listening(config, self.house.settings.vanish_timeout_s)
        await server.start()
        self._servers.append(server)
        return server.port

    async def stop(self) -> None:
        if self._admin is not None:
            await self._admin.aclose()
        for server in self._servers:
            await server.stop()
        for loop in self._tasks:
            loop.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        save(self.house)
        await self.house.close()

    def die(self) -> None:
        """Fall silent towards other routers from one moment to the next, as a process that was killed."""
        for loop in self._tasks:
            loop.cancel()

    # What a test looks at

    async def admin(self) -> httpx.AsyncClient:
        """Return a client of the admin API, which is started when first asked for."""
        if self._admin is None:
            port = await self._listen(uvicorn.Config(admin_app(self.house), http="httptools", **_SERVER))
            self._admin = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False)
        return self._admin

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def id_of(self, replica: HasUrl | str) -> ReplicaId:
        """The opaque id under which the router knows a replica."""
        url = replica if isinstance(replica, str) else replica.url
        return next(replica_id for replica_id, known in self.house.endpoints.items() if known.url == url)

    def books(self, replica: HasUrl | str) -> Replica:
        """What the fleet believes of a replica."""
        return self.house.fleet[self.id_of(replica)]

    @property
    def in_flight(self) -> dict[ReplicaId, tuple[int, int]]:
        """Streams and uncached tokens of every replica that has any."""
        ledgers = {replica.replica_id: replica.ledger for replica in self.house.fleet}
        counts = {name: (ledger.streams, ledger.uncached_tokens) for name, ledger in ledgers.items()}
        return {name: count for name, count in counts.items() if count != (0, 0)}

    async def until(self, holds: Callable[[], bool], what: str = "") -> None:
        """Wait for a condition on the router. It is looked at after every request, and every few milliseconds."""
        loop = asyncio.get_running_loop()
        deadline_s = time.monotonic() + DEADLINE_S
        waiting = True

        def look() -> None:
            if waiting:
                self._changes.tell()
                loop.call_later(LOOK_S, look)

        look()
        try:
            await self._changes.wait_for(holds, deadline_s - time.monotonic())
        except TimeoutError:
            raise AssertionError(what or f"did not come true within {DEADLINE_S:.0f} s") from None
        finally:
            waiting = False

    async def idle(self) -> None:
        """Wait until nothing is counted in flight anywhere."""
        await self.until(lambda: not self.in_flight and not self.house.plane.active, "requests are still counted in")
        self.house.plane.later.flush()
