"""Runs one router: two uvicorn servers, client and admin, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from router.app.admin.api import admin_app
from router.app.background import start_all
from router.app.following import first_lists
from router.app.keeping import save
from router.app.public import public_app
from router.app.settings.model import Settings
from router.app.wiring import House, build
from router.proxy.downstream import downstream_class

BACKLOG = 2048
"""Connections the kernel holds until they are accepted: a burst of a thousand clients is not refused."""


GC_THRESHOLD = 20_000
"""Allocations between young collections (700 by default): about 200 requests."""


class StartError(Exception):
    """The router can't start; the message says why in one line."""


class _Server(uvicorn.Server):
    """A server whose signals are handled by whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def set_up_logging(level: str) -> None:
    """Plain lines on stderr; caller, thread and process, which no line shows, are not collected: half a line's cost."""
    logging.basicConfig(level=level.upper(), format="%(message)s", stream=sys.stderr)
    for unused in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, unused, False)
    logging._srcfile = None  # documented in the logging cookbook: "Optimization"
    for noisy in ("httpx", "httpcore", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _spare_the_collector() -> None:
    """Keep what lives for ever out of the garbage collector's sight and let it run less often.

    Requests leave next to no cycles behind, and a full collection stops every stream for its duration.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)


async def serve(
    settings: Settings, client_socket: socket.socket, admin_socket: socket.socket, ready: Callable[[], None]
) -> None:
    """Run one router on two listening sockets until SIGINT or SIGTERM, then let running requests finish.

    `ready` is called once, when nothing can hinder the start any more. Raises StartError when TLS files are unusable.
    """
    house = build(settings)
    try:
        client_server = _Server(_client_config(settings, house))
        client_server.config.load()
    except (OSError, ValueError) as error:
        raise StartError(f"TLS: {error}") from None
    admin_server = _Server(uvicorn.Config(admin_app(house), http="httptools", **_COMMON))
    _spare_the_collector()
    _stop_on_signals(client_server)
    ready()
    tasks: set[asyncio.Future[None]] = set()
    start_all(house, lambda loop: tasks.add(asyncio.ensure_future(loop)))
    if house.store is not None:
        await house.store.tried()
    await first_lists(house)
    admin = asyncio.create_task(admin_server.serve(sockets=[admin_socket]))
    try:
        await client_server.serve(sockets=[client_socket])
    finally:
        admin_server.should_exit = True
        await admin
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        save(house)
        await house.close()


_COMMON: dict[str, Any] = {
    "lifespan": "off",
    "access_log": False,
    "log_config": None,
    "server_header": False,
    "ws": "none",
}


def _client_config(settings: Settings, house: House) -> uvicorn.Config:
    password = settings.ssl_keyfile_password
    return uvicorn.Config(
        public_app(house),
        http=downstream_class(house.plane),
        timeout_keep_alive=settings.keepalive_s,
        timeout_graceful_shutdown=settings.grace_s,
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
        ssl_keyfile_password=None if password is None else password.get_secret_value(),
        ssl_ca_certs=None if settings.ssl_ca_certs is None else str(settings.ssl_ca_certs),
        ssl_cert_reqs=0 if settings.ssl_ca_certs is None else 2,
        backlog=BACKLOG,
        **_COMMON,
    )


def _stop_on_signals(server: uvicorn.Server) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.handle_exit, number, None)
