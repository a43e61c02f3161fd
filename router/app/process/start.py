"""Starts the router: binds its ports, then runs it in this process or in several workers."""

from __future__ import annotations

import functools
import signal
import socket
import sys
from collections.abc import Callable, Sequence

import uvloop

from router.adapters.redis_store.address import parse
from router.app.process.open_files import raise_limit, warn_if_few
from router.app.process.reload import reload_alone
from router.app.process.serve import BACKLOG, Sockets, StartError, serve, set_up_logging
from router.app.process.stopping import Stop
from router.app.process.workers import run_workers
from router.app.settings.model import Settings
from router.app.settings.sources import Effective
from router.proxy.vanished import keep_alive


def run(effective: Effective) -> int:
    """Run until SIGINT or SIGTERM, then let running requests finish; return the exit code.

    Raises StartError when a port is taken, the TLS files are unusable or a worker can't start.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # one that comes before it can be heeded must not end the start
    raise_limit()
    settings = effective.settings
    set_up_logging(settings.log_level)
    client_socket = _listen(settings.host, settings.port)
    admin_sockets = [_listen(settings.admin_host, port) for port in _admin_ports(settings)]
    for listening in (client_socket, *admin_sockets):
        keep_alive(listening, settings.vanish_timeout_s)
    ready = functools.partial(_announce, settings, client_socket, admin_sockets)
    if settings.workers > 1:
        run_workers(effective, client_socket, admin_sockets, ready)
    else:
        uvloop.run(_serve_alone(effective, Sockets(client_socket, admin_sockets[0]), ready))
    return 0


async def _serve_alone(effective: Effective, sockets: Sockets, ready: Callable[[], None]) -> None:
    stop = Stop()
    stop.listen()
    try:
        await serve(effective.settings, sockets, ready, stop, functools.partial(reload_alone, effective))
    finally:
        stop.deafen()


def _admin_ports(settings: Settings) -> range | tuple[int, ...]:
    """One port for each worker, upwards from the first; 0 takes free ones."""
    first, count = settings.admin_port, settings.workers
    return range(first, first + count) if first else (0,) * count


def _listen(host: str, port: int) -> socket.socket:
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(info[4][:2], family=info[0], backlog=BACKLOG)
    except OSError as error:
        raise StartError(f"can't listen on {host}:{port}: {error.strerror or error}") from None


def _announce(settings: Settings, client_socket: socket.socket, admin_sockets: Sequence[socket.socket]) -> None:
    scheme = "https" if settings.ssl_certfile else "http"
    print(f"warmroute: clients  {scheme}://{_shown(client_socket)}/v1", flush=True)
    for admin_socket in admin_sockets:
        print(f"warmroute: admin    http://{_shown(admin_socket)}/", flush=True)
    if settings.redis is not None:
        print(f"warmroute: shares   {parse(settings.redis.get_secret_value())}", flush=True)
    if not settings.replica and not settings.discover:
        print("warmroute: no replica is configured: every request is answered 503", file=sys.stderr, flush=True)
    warn_if_few(settings)


def _shown(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
