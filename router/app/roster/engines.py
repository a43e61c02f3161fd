"""Watches the engines behind the replicas: whether they answer, how busy they are, which models they serve."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from random import uniform

import xxhash

from router.app.house import House
from router.app.roster.readings import Readings
from router.app.roster.warming import Warming
from router.core.types import ReplicaId

LOGGER = logging.getLogger("warmroute.fleet")

RESTART_S = 1.0
"""Before a loop that has failed begins again: often enough to go on, seldom enough to read the log."""

LOOK_S = 0.5
"""How often it is looked at whether requests have told of a failure before a probe did. As long as the first back-off
of an ejected replica."""

OUT_INTERVAL_S = 1.0
"""Between two probes of an ejected replica at the most, so that one that is back is used within 2 s."""

MODELS_AGAIN_S = 1.0
"""Between two readings of an engine's models at the least, whatever clients ask for."""

Spawn = Callable[[Awaitable[None]], None]
"""Starts a loop that runs beside the data plane; it is cancelled when the router stops."""


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


class Watches:
    """The watches of all engines: one for each URL, however many data-parallel ranks are replicas of it.

    Call `begin` after `house.add_replica`, and `end` before or after `house.remove_replica`. Both return at once.
    """

    def __init__(self, house: House, spawn: Spawn, warming: Warming | None = None) -> None:
        """`warming`: warms replicas up that come in cold; None: nothing does."""
        self._house = house
        self._spawn = spawn
        self._warming = warming
        self._by_url: dict[str, Watch] = {}

    def begin(self, replica_id: ReplicaId) -> None:
        """Watch a replica of the house. The first readings are made at once."""
        url = self._house.endpoints[replica_id].url
        watch = self._by_url.get(url)
        if watch is None:
            watch = self._by_url[url] = Watch(self._house, replica_id, self._warming)
            self._spawn(watch.run())
        watch.readings.add(replica_id)
        watch.read_soon()

    def end(self, replica_id: ReplicaId) -> None:
        """Watch a replica no more; nothing happens where it is not watched."""
        for url, watch in list(self._by_url.items()):
            watch.readings.remove(replica_id)
            if not watch.readings.replicas:
                watch.ended.set()
                del self._by_url[url]

    def refresh_models(self) -> None:
        """Read every engine's models soon: a request asks for one that nobody is known to serve. Cheap to call."""
        for watch in self._by_url.values():
            watch.readings.models_wanted.set()


class Watch:
    """The watch of one engine: loops of its own, so that a slow engine delays no other, and a slow page no probe."""

    def __init__(self, house: House, replica_id: ReplicaId, warming: Warming | None) -> None:
        """`replica_id`: its first one; when in an interval its metrics are read depends on that."""
        self.readings = Readings(house)
        self.ended = asyncio.Event()
        self._house = house
        self._clock = house.plane.clock
        self._warming = warming
        self._metrics_wanted = asyncio.Event()
        self._phase_ratio = _phase_ratio(replica_id)

    def read_soon(self) -> None:
        """Read everything soon: a replica of the engine has come."""
        self._metrics_wanted.set()
        self.readings.models_wanted.set()

    async def run(self) -> None:
        """Watch until `ended` is set."""
        loops = {
            "probing an engine": self._probe_forever,
            "reading an engine's metrics": self._read_metrics_forever,
            "reading an engine's models": self._read_models_forever,
            "trying a silent engine": self._try_silent_forever,
            "warming an engine up": self._warm_up_forever,
        }
        tasks = [asyncio.ensure_future(keep_running(name, loop)) for name, loop in loops.items()]
        try:
            await self.ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _probe_forever(self) -> None:
        while True:
            began_s = self._clock()
            await self.readings.probe()
            due_s = began_s + self._house.settings.health_interval_s * uniform(0.9, 1.1)
            while (left_s := due_s - self._clock()) > 0:
                await asyncio.sleep(min(left_s, LOOK_S))
                self.readings.tell_changes()
                if self.readings.any_out:
                    due_s = min(due_s, began_s + OUT_INTERVAL_S)

    async def _read_metrics_forever(self) -> None:
        """At the start all engines are read at once: nothing is known yet."""
        interval_s = self._house.settings.scrape_interval_s
        phase_s = self._phase_ratio * interval_s
        while True:
            began_s = self._clock()
            self._metrics_wanted.clear()
            await self.readings.read_metrics()
            await _wanted(self._metrics_wanted, began_s + interval_s - self._clock() + phase_s)
            phase_s = 0.0

    async def _read_models_forever(self) -> None:
        settings = self._house.settings
        while True:
            began_s = self._clock()
            self.readings.models_wanted.clear()
            read = await self.readings.read_models()
            pause_s = settings.models_interval_s if read else min(MODELS_AGAIN_S, settings.models_interval_s)
            await asyncio.sleep(began_s + min(MODELS_AGAIN_S, pause_s) - self._clock())
            await _wanted(self.readings.models_wanted, began_s + pause_s - self._clock())

    async def _try_silent_forever(self) -> None:
        while True:
            await self.readings.try_silent()
            await asyncio.sleep(OUT_INTERVAL_S)

    async def _warm_up_forever(self) -> None:
        while self._warming is not None:
            for replica_id in self.readings.take_cold():
                await self._warming.warm_up(replica_id)
            await asyncio.sleep(LOOK_S)


async def _wanted(event: asyncio.Event, limit_s: float) -> None:
    """Wait until it is asked for what `event` stands for, or for `limit_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, limit_s)):
            await event.wait()


def _phase_ratio(replica_id: ReplicaId) -> float:
    """Return where in the interval an engine is read, 0 to 1: all at once, their pages would hold up every stream."""
    return xxhash.xxh3_64_intdigest(replica_id.encode()) / 2**64
