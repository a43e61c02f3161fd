"""The loops beside the data plane: reading every engine's metrics and model list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import xxhash

from router.app.keeping import keep_forever
from router.app.wiring import House
from router.core.types import OutcomeKind, ReplicaId

RESTART_S = 1.0
"""Before a loop that has failed begins again: often enough to go on, seldom enough to read the log."""

LOGGER = logging.getLogger("warmroute.fleet")


async def watch_replica(house: House, replica_id: ReplicaId) -> None:
    """Read one replica's metrics and models at their intervals until cancelled.

    Each replica has a loop of its own, so that a slow one delays no other.
    """
    settings = house.settings
    models_due_s, phase_s = 0.0, _phase_ratio(replica_id) * settings.scrape_interval_s
    while replica_id in house.fleet:
        started_s = house.plane.clock()
        reached = await _read_metrics(house, replica_id)
        if reached and started_s >= models_due_s and await _read_models(house, replica_id):
            models_due_s = started_s + settings.models_interval_s
        spent_s = house.plane.clock() - started_s
        await asyncio.sleep(max(0.0, settings.scrape_interval_s - spent_s) + phase_s)
        phase_s = 0.0


def _phase_ratio(replica_id: ReplicaId) -> float:
    """Return where in the interval a replica is read, 0 to 1: all at once, their pages would hold up every stream.

    At the start all are read at once: nothing is known yet.
    """
    return xxhash.xxh3_64_intdigest(replica_id.encode()) / 2**64


async def _read_metrics(house: House, replica_id: ReplicaId) -> bool:
    """Take in one reading; return whether the replica was reached."""
    replica = house.fleet[replica_id]
    was_up = replica.health.up
    try:
        report = await house.probes[replica_id].report()
    except ConnectionRefusedError:
        if replica_id in house.fleet:
            if was_up:
                LOGGER.warning("replica %s (%s) refuses connections", replica_id, house.endpoints[replica_id].url)
            replica.health.failed(OutcomeKind.REFUSED, house.plane.clock())
        return False
    except OSError as error:  # slow, garbled or refused /metrics say nothing of the replica's requests
        LOGGER.debug("metrics of replica %s can't be read: %s", replica_id, error)
        house.fleet.lost_sight_of(replica_id)
        return False
    if replica_id not in house.fleet:
        return False
    if house.fleet.observe_engine(replica_id, report):
        LOGGER.warning("replica %s restarted: its cache is taken to be empty", replica_id)
    if replica.health.probed():
        LOGGER.warning("replica %s (%s) is back", replica_id, house.endpoints[replica_id].url)
    return True


async def _read_models(house: House, replica_id: ReplicaId) -> bool:
    try:
        models = await house.probes[replica_id].models()
    except OSError as error:
        LOGGER.debug("models of replica %s can't be read: %s", replica_id, error)
        return False
    if replica_id in house.fleet:
        house.fleet[replica_id].models = house.models.update(replica_id, models)
    return True


def start_all(house: House, spawn: Callable[[Awaitable[None]], None]) -> None:
    """Start all loops through `spawn`."""
    for replica_id in list(house.endpoints):
        spawn(keep_running("reading a replica", partial(watch_replica, house, replica_id)))
    spawn(keep_running("the sweep", house.plane.sweep_forever))
    spawn(keep_running("keeping the state", partial(keep_forever, house)))
    start_sharing(house, spawn)


def start_sharing(house: House, spawn: Callable[[Awaitable[None]], None]) -> None:
    """Start the loops that talk to Redis, if there is one."""
    for loop in house.store.loops() if house.store is not None else ():
        spawn(keep_running("sharing", loop))


async def keep_running(name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run a loop until it ends or is cancelled; begin again after a mistake of ours, which must not end it unseen."""
    while True:
        try:
            await loop()
        except Exception:
            LOGGER.exception("%s failed, and begins again", name)
            await asyncio.sleep(RESTART_S)
        else:
            return
