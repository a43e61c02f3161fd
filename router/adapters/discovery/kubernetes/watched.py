"""Replicas that Kubernetes tells of by itself."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Generic, TypeVar

import httpx

from router.adapters.discovery.kubernetes.api import Api, Resource
from router.adapters.discovery.kubernetes.cluster import Cluster
from router.adapters.discovery.kubernetes.follow import Pace, follow
from router.adapters.discovery.kubernetes.objects import Reading, Thing
from router.adapters.discovery.trouble import Readability, Unreadable
from router.ports import Endpoint

T = TypeVar("T", bound=Thing)

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
"""Between two tries that fail, doubled each time: quick after a hiccup, no burden for a server that is down."""

MAX_RETRY_AFTER_S = 300.0
"""A server that wants to be left alone for longer is asked all the same."""

STEADY_S = 2.0
"""What has gone on for that long was no failed try."""


_ONCE = httpx.Limits(max_keepalive_connections=0)
"""Each request has a connection of its own. One that is used again may be closed by the server at that moment."""


class Pauses:
    """How long to wait before the next round."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        """`chance` gives numbers from 0 to 1: routers that lost the same server must not come back at once."""
        self._chance = chance
        self._tries = 0

    def after(self, lasted_s: float, trouble: Unreadable | None) -> float:
        """Return seconds. A round that ended early without trouble is followed by the next at once, the first time."""
        if trouble is None and lasted_s >= STEADY_S:
            self._tries = 0
            return 0.0
        doublings = self._tries - (trouble is None)
        self._tries = min(self._tries + 1, 20)
        pause_s = 0.0 if doublings < 0 else min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**doublings)
        asked_s = min(MAX_RETRY_AFTER_S, trouble.retry_after_s) if trouble else 0.0
        return max(asked_s, pause_s * (0.5 + self._chance() / 2))


class Watched(Generic[T]):
    """Follows objects of Kubernetes. Implements `ports.Discovery`."""

    def __init__(
        self,
        name: str,
        resource: Resource[T],
        place: tuple[str, str],
        read: Callable[[Iterable[T]], Reading],
        cluster: Callable[[], Cluster],
        pace: Pace,
    ) -> None:
        """`place`: namespace, empty for the pod's own, and label selector. `cluster` may raise Unreadable."""
        self.name = name
        self._resource = resource
        self._namespace, self._selector = place
        self._read = read
        self._cluster = cluster
        self._pace = pace
        self._readability = Readability(name)

    async def endpoints(self) -> AsyncIterator[list[Endpoint]]:
        """Give the list at first and whenever it has changed, as `ports.Discovery` says."""
        clock, pauses = asyncio.get_running_loop().time, Pauses()
        told: list[Endpoint] | None = None
        while True:
            began_s, trouble = clock(), None
            try:
                async with contextlib.aclosing(self._round()) as lists:
                    async for objects in lists:
                        found, remarks = self._read(objects)
                        self._readability.remarks(remarks)
                        if found != told:
                            told = found
                            yield list(found)
            except Unreadable as unreadable:
                trouble = unreadable
                self._readability.failed(str(trouble))
            except Exception as fault:  # noqa: BLE001 - a mistake of ours is logged, and ends no watch
                trouble = Unreadable(f"{type(fault).__name__}: {fault}")
                self._readability.failed(str(trouble), fault)
            await asyncio.sleep(pauses.after(clock() - began_s, trouble))

    async def _round(self) -> AsyncGenerator[list[T]]:
        """Give the objects from one list up to the next, with a client of its own: trust and addresses may change."""
        cluster = self._cluster()
        async with httpx.AsyncClient(verify=cluster.tls(), trust_env=False, limits=_ONCE) as client:
            api = Api(client, cluster, self._resource, self._namespace or cluster.namespace(), self._selector)
            following = follow(api, self._resource.type, self._pace, self._readability.well)
            async with contextlib.aclosing(following) as lists:
                async for objects in lists:
                    yield objects
