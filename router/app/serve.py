"""Runs the router: two uvicorn servers, client and admin, in one event loop, or several such processes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn
import uvloop

from router.adapters.redis_store.address import parse
from router.app.admin import admin_app
from router.app.background import start_all
from router.app.keeping import save
from router.app.public import public_app
from router.app.settings import Settings
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


def run(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM, then let running requests finish; return the exit code.

    Raises StartError when a port is taken, the TLS files are unusable or a worker can't start.
    """
    set_up_logging(settings.log_level)
    client_socket = _listen(settings.host, settings.port)
    admin_sockets = [_listen(settings.admin_host, port) for port in _admin_ports(settings)]
    ready = functools.partial(_announce, settings, client_socket, admin_sockets)
    if settings.workers > 1:
        from router.app.workers import run_workers

        run_workers(settings, client_socket, admin_sockets, ready)
    else:
        uvloop.run(serve(settings, client_socket, admin_sockets[0], ready))
    return 0


def _admin_ports(settings: Settings) -> range | tuple[int, ...]:
    """One port for each worker, upwards from the first; 0 takes free ones."""
    first, count = settings.admin_port, settings.workers
    return range(first, first + count) if first else (0,) * count


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


def _listen(host: str, port: int) -> socket.socket:
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(info[4][:2], family=info[0], backlog=BACKLOG)
    except OSError as error:
        raise StartError(f"can't listen on {host}:{port}: {error.strerror or error}") from None


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
        timeout_graceful_shutdown=settings.shutdown_grace_s,
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


def _announce(settings: Settings, client_socket: socket.socket, admin_sockets: Sequence[socket.socket]) -> None:
    scheme = "https" if settings.ssl_certfile else "http"
    print(f"warmroute: clients  {scheme}://{_shown(client_socket)}/v1", flush=True)
    for admin_socket in admin_sockets:
        print(f"warmroute: admin    http://{_shown(admin_socket)}/docs", flush=True)
    if settings.redis is not None:
        print(f"warmroute: shares   {parse(settings.redis.get_secret_value())}", flush=True)
    if not settings.replica:
        print("warmroute: no replica is configured: every request is answered 503", file=sys.stderr, flush=True)


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
