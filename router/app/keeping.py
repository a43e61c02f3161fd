"""Keeps what a router knows in its state file while it runs. The next start reads it: `wiring.build`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from pathlib import Path

from router.adapters.history import kept
from router.adapters.state_file import Saved, write
from router.app.house import House
from router.core.fleet import Fleet
from router.core.snapshot import Snapshot, take, taking

LOGGER = logging.getLogger("warmroute.state")

FIND_S = 60.0
"""How long replicas are looked for before what is known of those that were not found is given up."""

INTERVAL_S = 30.0
"""A killed router loses so much. About one turn of a chat (median think time 25 s), of which the earlier turns stay
known; and writing, some 16 MB at 64 M tokens, takes the event loop about 3 ms of each second."""


def save(house: House) -> None:
    """Write the state file at the end, when nothing else runs any more. A failure is logged."""
    path = house.settings.state_file
    if path is None or house.remembered is not None:
        return  # what is in the file tells of replicas that have not been found again yet
    house.plane.later.flush()
    try:
        _write(path, house.salt, take(house.fleet, house.plane.clock()), kept.take(house.history, house.sessions))
    except OSError as error:
        LOGGER.warning("state can't be kept in %s: %s", path, error.strerror or error)


async def keep_forever(house: House) -> None:
    """Write the state file at intervals until cancelled. At once as well: a path that can't be written shows early."""
    path = house.settings.state_file
    if path is None:
        return
    keeper = Keeper(house, path)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIND_S):
            await house.roster.complete.wait()
    house.remembered = None
    while True:
        await keeper.write_if_changed()
        await asyncio.sleep(INTERVAL_S)


class Keeper:
    """Writes the state file of a running router."""

    def __init__(self, house: House, path: Path) -> None:
        self._house = house
        self._path = path
        self._written: tuple[int, int, int] | None = None
        """The fleet's mark when the file was last written."""

    async def write_if_changed(self) -> bool:
        """Write unless nothing has happened since; return whether the file was written. Failures are logged once."""
        mark = _mark(self._house.fleet)
        if mark == self._written:
            return False
        snapshot = await _taken(self._house)
        self._house.plane.later.flush()
        history = kept.take(self._house.history, self._house.sessions)
        try:
            await _to_its_end(asyncio.to_thread(_write, self._path, self._house.salt, snapshot, history))
        except OSError as error:
            if self._house.state_kept:
                LOGGER.warning("state can't be kept in %s: %s", self._path, error.strerror or error)
            self._house.state_kept = False
            return False
        if not self._house.state_kept:
            LOGGER.warning("state is kept in %s again", self._path)
        self._written, self._house.state_kept = mark, True
        return True


def _write(path: Path, salt: bytes, snapshot: Snapshot, history: kept.Taken) -> None:
    """Write what was taken. Raises OSError."""
    write(path, Saved(salt, snapshot, kept.encode(history)))


def _mark(fleet: Fleet) -> tuple[int, int, int]:
    """Return numbers of which one changes whenever a request comes or ends, or something is forgotten."""
    last = max((replica.last_chosen for replica in fleet), default=0)
    return last, sum(replica.streams for replica in fleet), fleet.index.size_bytes


async def _taken(house: House) -> Snapshot:
    """Take a snapshot in steps, between which streams go on."""
    steps = taking(house.fleet, house.plane.clock())
    while True:
        try:
            next(steps)
        except StopIteration as done:
            taken: Snapshot = done.value
            return taken
        await asyncio.sleep(0)


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Wait for work that goes on in its thread when it is cancelled: no other write may begin before it ends."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
