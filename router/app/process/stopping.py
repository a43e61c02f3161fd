"""The stop: clients are sent elsewhere, what runs may end, what does not end is cut, and nothing holds up the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import threading
from collections.abc import Coroutine
from typing import Any

from router.app.house import House
from router.app.process.listening import Listening
from router.proxy.errors import RouterError

LOGGER = logging.getLogger("warmroute.stop")

SAME_SIGNAL_S = 0.5
"""Ctrl-C in a wrapper and `timeout` signal a process and then its group: so near together they are one wish."""

HURRY = signal.SIGUSR1
"""A parent's word to a worker that the end was asked for again. SIGTERM would not do: the worker, which heard of the
first wish later, may take the two for one."""

LAST_BYTES_S = 0.5
"""How long a client has to take the event that its stream is cut; then its connection is reset."""

END_S = 3.0
"""What is left to do when no client is left: the state file, the last word to Redis, the last scrape."""


class Stop:
    """Whether the end was asked for, and whether it was asked for again. It belongs to the event loop it is made in."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.hurried = asyncio.Event()
        """Asked for again: at once."""
        self._since_s = 0.0

    def listen(self) -> None:
        """Take SIGINT and SIGTERM for it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.signalled)

    def deafen(self) -> None:
        """Ignore all signals that were heeded, for nothing is left to do.

        The end of the loop would give them their default back, and one that comes then would spoil the exit code.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, HURRY):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    def ask(self) -> None:
        """Want the end."""
        if not self.wanted.is_set():
            self._since_s = asyncio.get_running_loop().time()
            self.wanted.set()

    def hurry(self) -> None:
        """Want the end at once."""
        self.ask()
        self.hurried.set()

    def signalled(self) -> None:
        """Take a signal: the first asks, a later one hurries."""
        if not self.wanted.is_set():
            self.ask()
        elif asyncio.get_running_loop().time() - self._since_s > SAME_SIGNAL_S:
            self.hurried.set()


async def until(event: asyncio.Event, work: Coroutine[Any, Any, Any], limit_s: float | None = None) -> None:
    """Do some work until it is done; give it up when the event comes, or after so many seconds."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((working, waiting), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        waiting.cancel()
    if working.done() and not working.cancelled():
        working.result()


async def finish(house: House, clients: Listening, stop: Stop) -> None:
    """Take no more requests, and return when there is no client left. A hurry shortens everything but the last bytes.

    Connections made before the ports close are served; each answer says that it is the last on its connection.
    """
    settings, active = house.settings, house.plane.active
    LOGGER.info(
        "stopping: %d requests are under way; connections are taken for %g s more, answers may take %g s after that",
        len(active),
        settings.drain_s,
        settings.grace_s,
    )
    house.gate.close()
    clients.end_after_these()
    await until(stop.hurried, asyncio.sleep(settings.drain_s))
    clients.refuse()
    await until(stop.hurried, clients.emptied(), settings.grace_s)
    house.plane.room.close()
    cut = len(active)
    for exchange in list(active):
        exchange.cut(RouterError.ROUTER_STOPPING)
    await clients.abort(LAST_BYTES_S)
    if cut:
        LOGGER.warning("stopped: %d requests were cut", cut)
    else:
        LOGGER.info("stopped: every request was answered")


def give_up_soon() -> None:
    """Have the process ended in END_S, whatever hangs then: a thread in the resolver, a disk, a full pipe."""
    last = threading.Timer(END_S, _give_up)
    last.daemon = True
    last.start()


def _give_up() -> None:
    with contextlib.suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"warmroute: the end has taken {END_S:g} s: what still hangs is left behind\n".encode())
    os._exit(1)
