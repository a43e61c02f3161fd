"""Runs one router: two uvicorn servers, client and admin, in one event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import uvicorn

from router.adapters.client_keys import KeyFileError
from router.adapters.tokenizer.trouble import TokenizerFileError
from router.app.admin.api import admin_app
from router.app.admin.guard import warn_if_open
from router.app.background import start_all
from router.app.house import House
from router.app.keeping import save
from router.app.process.listening import Listening
from router.app.process.log_lines import OneLine
from router.app.process.stopping import Stop, finish, give_up_soon, until
from router.app.public import public_app
from router.app.recording import Origin
from router.app.roster.engines import keep_running
from router.app.roster.following import first_lists
from router.app.settings.model import Settings
from router.app.wiring import build
from router.proxy.downstream import downstream_class

BACKLOG = 2048
"""Connections the kernel holds until they are accepted: a burst of a thousand clients is not refused."""


GC_THRESHOLD = 20_000
"""Allocations between young collections (700 by default): about 200 requests."""

LAST_S = 0.5
"""What each of the last steps may take: ending the loops, the last word to Redis, the last scrape."""


class StartError(Exception):
    """The router can't start; the message says why in one line."""


class Sockets(NamedTuple):
    """Where a router listens."""

    clients: socket.socket
    admin: socket.socket


Control = Callable[[House], Awaitable[None]]
"""A loop that reloads the settings whenever that is asked for."""


def set_up_logging(level: str) -> None:
    """Plain lines on stderr; caller, thread and process, which no line shows, are not collected: half a line's cost."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for unused in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, unused, False)
    logging._srcfile = None  # documented in the logging cookbook: "Optimization"
    for noisy in ("httpx", "httpcore", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def spare_the_collector() -> None:
    """Keep what lives for ever out of the garbage collector's sight and let it run less often.

    Requests leave next to no cycles behind, and a full collection stops every stream for its duration.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)


async def serve(
    settings: Settings,
    sockets: Sockets,
    ready: Callable[[], None],
    stop: Stop,
    control: Control,
    origin: Origin | None = None,
) -> None:
    """Run one router on two listening sockets until `stop` is wanted, then let running requests finish.

    `ready` is called once, when nothing can hinder the start any more. `origin`: see `wiring.build`. Raises StartError
    when TLS files, the key file or a tokenizer's files are unusable.
    """
    try:
        house = build(settings, origin)
    except (KeyFileError, TokenizerFileError) as error:
        raise StartError(str(error)) from None
    warn_if_open(settings)
    clients, admin = _servers(house, sockets)
    spare_the_collector()
    ready()
    loops: set[asyncio.Future[None]] = set()
    start_all(house, lambda loop: loops.add(asyncio.ensure_future(loop)))
    loops.add(asyncio.ensure_future(keep_running("reloading", partial(control, house))))
    try:
        await until(stop.wanted, _find_others(house))
        if not stop.wanted.is_set():
            await admin.open()
            await clients.open()
            await stop.wanted.wait()
            await finish(house, clients, stop)
    finally:
        give_up_soon()
        await _end(house, loops)
        await _close(clients, admin)


async def _find_others(house: House) -> None:
    """Wait for what the first requests want to know: the replicas, and what other routers know. Both have a limit."""
    await first_lists(house)
    if house.store is not None:
        await house.store.tried()


async def _end(house: House, loops: set[asyncio.Future[None]]) -> None:
    """Keep what is known, and leave."""
    for loop in loops:
        loop.cancel()
    await asyncio.wait([asyncio.gather(*loops, return_exceptions=True)], timeout=LAST_S)
    save(house)
    await asyncio.wait([asyncio.ensure_future(house.close())], timeout=LAST_S)


async def _close(*servers: Listening) -> None:
    for server in servers:
        server.refuse()
        await server.abort(LAST_S)


def _servers(house: House, sockets: Sockets) -> tuple[Listening, Listening]:
    """Make the client server and the admin server. Raises StartError when TLS files are unusable."""
    config = _client_config(house)
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise StartError(f"TLS: {error}") from None
    house.reloads.serving = config
    admin = uvicorn.Config(admin_app(house), http="httptools", **_COMMON)
    shared = house.settings.workers > 1
    return Listening(config, sockets.clients, house.plane.idle, shared=shared), Listening(admin, sockets.admin)


_COMMON: dict[str, Any] = {
    "lifespan": "off",
    "access_log": False,
    "log_config": None,
    "server_header": False,
    "ws": "none",
}


def _client_config(house: House) -> uvicorn.Config:
    settings = house.settings
    password = settings.ssl_keyfile_password
    return uvicorn.Config(
        public_app(house),
        http=downstream_class(house.plane, house.doorway.door),
        timeout_keep_alive=settings.keepalive_s,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        ssl_keyfile_password=None if password is None else password.get_secret_value(),
        ssl_ca_certs=None if settings.ssl_ca_certs is None else str(settings.ssl_ca_certs),
        ssl_cert_reqs=0 if settings.ssl_ca_certs is None else 2,
        backlog=BACKLOG,
        **_COMMON,
    )
