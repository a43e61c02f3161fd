"""Hosts that vanish without a word: no FIN and no RST comes, and only the kernel can tell, by what is not acknowledged.

Two things find them. TCP keep-alive (RFC 1122 section 4.2.3.6) asks a host from which nothing has come for a while: a
client that waits for its first byte, an engine in mid-stream. It asks nothing while sent bytes are unacknowledged.
Those are sent again, for 15 minutes as Linux is set up, so a sweep looks how long that has gone on. The socket option
that would end it by itself, TCP_USER_TIMEOUT, also ends connections whose other side is there and only does not read.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections.abc import Callable, Collection
from itertools import islice
from typing import NamedTuple, Protocol

AT_A_TIME = 256
"""Exchanges looked at by one sweep: some 4 us each, so that no stream is held up by it. Of 3,000 each one's turn
comes every 6 s."""

_PROBES_RATIO = 0.1
"""Between two keep-alive probes, of the whole time: five in the second half, so that lost packets do not look like a
lost host."""

_INFO = struct.Struct("=8B13I")
"""The beginning of Linux's `struct tcp_info` (include/uapi/linux/tcp.h), up to `tcpi_last_ack_recv`."""


class Sock(Protocol):
    """A socket, or an event loop's view of one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """As of `socket.socket`."""


def keep_alive(sock: Sock, limit_s: float) -> None:
    """Let the kernel end a quiet connection whose host has vanished, `limit_s` after it was last heard of.

    What is accepted from a listening socket inherits it. The kernel counts whole seconds. Where it has no such options
    (they are Linux's), it asks at its own pace.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        quiet_s = max(1, round(limit_s / 2))
        pause_s = max(1, round(limit_s * _PROBES_RATIO))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, quiet_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, max(1, math.ceil((limit_s - quiet_s) / pause_s)))


class Silent(NamedTuple):
    """What the kernel says of bytes that were sent and are not acknowledged. All 0 where there are none."""

    resent_s: float = 0.0
    """For how long they have been sent again in vain, at the least: up to half of it may be missing."""
    unheard_s: float = 0.0
    """Since the last acknowledgement of anything."""


_ALL_HEARD = Silent()


def unacknowledged(transport: asyncio.BaseTransport) -> Silent:
    """Ask the kernel about a connection. The pause before bytes are sent again doubles with each time (RFC 6298).

    A window of zero is no such silence: whoever announces it is there.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or transport.is_closing() or not hasattr(socket, "TCP_INFO"):
        return _ALL_HEARD
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    except OSError:  # closed meanwhile, or no TCP
        return _ALL_HEARD
    if len(info) < _INFO.size:
        return _ALL_HEARD
    fields = _INFO.unpack(info)
    times, pause_us, unacknowledged_segments, last_heard_ms = fields[2], fields[8], fields[12], fields[20]
    if not unacknowledged_segments:
        return _ALL_HEARD
    return Silent(pause_us / 1e6 * (1.0 - 0.5**times), last_heard_ms / 1000)


class Exchange(Protocol):
    """A request under way."""

    def look_at_hosts(self, now: float) -> None:
        """End it if a host of it has vanished."""


class Turns:
    """Looks at the hosts of all exchanges, some in each sweep."""

    def __init__(self, exchanges: Callable[[], Collection[Exchange]]) -> None:
        self._exchanges = exchanges
        self._due: list[Exchange] = []

    def sweep(self, now: float) -> None:
        """Look at the next ones."""
        if not self._due:
            self._due = list(self._exchanges())
        for _ in islice(range(len(self._due)), AT_A_TIME):
            self._due.pop().look_at_hosts(now)
