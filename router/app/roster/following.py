"""Makes the fleet follow the roster: replicas join, change, drain and leave while requests run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from router.app.house import House, add_replica, remove_replica
from router.app.roster.members import Member
from router.core.health import State
from router.core.types import ReplicaId
from router.ports import Discovery, Endpoint

FIRST_LISTS_S = 2.0
"""How long a start waits for its sources: a name or a file is read by then. Without replicas all is answered 503."""

LOGGER = logging.getLogger("warmroute.fleet")


def follow(house: House) -> None:
    """Make the fleet what the roster says, at once and as a whole. Each change is one line in the log."""
    members = house.roster.members()
    for replica_id in [replica_id for replica_id in house.endpoints if replica_id not in members]:
        _leave(house, replica_id)
    for replica_id, member in members.items():
        before = house.endpoints.get(replica_id)
        if before is None:
            _join(house, member)
        elif before != member.endpoint:
            _change(house, replica_id, before, member.endpoint)
        _drain(house, replica_id, member)


def _join(house: House, member: Member) -> None:
    replica_id = add_replica(house, member.endpoint)
    LOGGER.info("replica %s (%s) joins: %s", replica_id, shown(member.endpoint), ", ".join(member.sources))
    if house.roster.watching is not None:
        house.roster.watching.begin(replica_id)


def _leave(house: House, replica_id: ReplicaId) -> None:
    streams = house.fleet[replica_id].ledger.streams
    LOGGER.info("replica %s (%s) leaves, %d requests run on", replica_id, shown(house.endpoints[replica_id]), streams)
    if house.roster.watching is not None:
        house.roster.watching.end(replica_id)
    remove_replica(house, replica_id)


def _change(house: House, replica_id: ReplicaId, before: Endpoint, now: Endpoint) -> None:
    """Take over what is said of a replica that stays the same."""
    changes = [
        f"{name} {getattr(before, name)!r} becomes {getattr(now, name)!r}"
        for name in ("weight", "models", "labels")
        if getattr(before, name) != getattr(now, name)
    ]
    if changes:
        LOGGER.info("replica %s (%s): %s", replica_id, shown(now), ", ".join(changes))
    house.endpoints[replica_id] = now
    replica = house.fleet[replica_id]
    if before.weight != now.weight:
        house.fleet.weigh(replica_id, now.weight)
    if replica.models == frozenset(before.models):  # the engine itself has not said otherwise
        replica.models = frozenset(now.models)


def _drain(house: House, replica_id: ReplicaId, member: Member) -> None:
    health, now = house.fleet[replica_id].health, house.plane.clock()
    draining = health.state is State.DRAINING
    if member.drained or member.endpoint.leaving:
        if not draining:
            cause = "ordered" if member.drained else "it is about to be stopped"
            LOGGER.info("replica %s (%s) drains: %s", replica_id, shown(member.endpoint), cause)
            health.drain(now)
    elif draining:
        LOGGER.info("replica %s (%s) drains no more", replica_id, shown(member.endpoint))
        health.undrain(now)


def shown(endpoint: Endpoint) -> str:
    """Return an address as logs show it."""
    return endpoint.url if endpoint.rank is None else f"{endpoint.url} rank {endpoint.rank}"


def source_loops(house: House) -> list[Callable[[], Awaitable[None]]]:
    """Return a loop for each source, to run until it is cancelled."""
    return [partial(_follow_source, house, source) for source in house.sources]


async def _follow_source(house: House, source: Discovery) -> None:
    async for endpoints in source.endpoints():
        house.roster.put(source.name, endpoints)
        follow(house)
        if house.roster.complete.is_set():
            house.remembered = None


async def first_lists(house: House) -> None:
    """Wait until every source has given its first list, for `FIRST_LISTS_S` at the most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_LISTS_S):
            await house.roster.complete.wait()
