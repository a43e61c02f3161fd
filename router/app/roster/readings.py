"""What is read of one engine, and what becomes of it in the fleet's books."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from enum import Enum, auto

import msgspec

from router.app.house import House
from router.core.health import Cause, Health, State
from router.core.replica import Replica
from router.core.types import EngineReport, OutcomeKind, ReplicaId
from router.ports import OWN_FAULTS, EngineProbe
from router.proxy.plane import SWEEP_S
from router.proxy.shortage import Shortage

SWEPT_S = SWEEP_S + 0.1
"""After a probe that took too long, until the bytes that came meanwhile have been noticed. An engine that sends them
is busy, not away; and where it is this router that was held up, they have been waiting."""

LOGGER = logging.getLogger("warmroute.fleet")

NO_SUCH_RANK = EngineReport(asleep=True)
"""Report of a data-parallel rank that the engine does not have: it would refuse every request."""

RETURN_S = 0.5
"""How long the readmission of an ejected replica waits for its metrics."""

OUT, ASLEEP, BACK = "out", "asleep or paused", "back"


class Answer(Enum):
    """What came of a probe."""

    GOOD = auto()
    REFUSED = auto()
    """No connection could be made."""
    BAD = auto()
    """A 5xx, or a lost connection."""
    LATE = auto()
    """Nothing came in time."""
    NONE = auto()
    """It could not be asked, which says nothing of it."""


async def _asked(probe: EngineProbe, shortage: Shortage, now: float) -> Answer:
    try:
        await probe.health()
    except ConnectionRefusedError:
        return Answer.REFUSED
    except TimeoutError:
        return Answer.LATE
    except OSError as error:
        if error.errno in OWN_FAULTS:
            shortage.met(error, now)
            return Answer.NONE
        LOGGER.debug("a probe failed: %s", error)
        return Answer.BAD
    return Answer.GOOD


def _judge(health: Health, answer: Answer, now: float) -> None:
    if answer is Answer.GOOD:
        health.probed(now)
    elif answer is Answer.REFUSED:
        health.failed(OutcomeKind.REFUSED, now)
    else:
        health.missed(now)


class Readings:
    """One engine as its watch reads it."""

    def __init__(self, house: House) -> None:
        self.replicas: set[ReplicaId] = set()
        """Those behind its URL: several where it is data-parallel."""
        self.models_wanted = asyncio.Event()
        """Set when its models should be read soon."""
        self._house = house
        self._metrics = asyncio.Lock()
        """Pages are taken in one after the other: an old one after a new one would look like a restart."""
        self._says_paused = True
        """Whether it has a route that tells whether it is paused; taken to have until it says no."""
        self._cold: set[ReplicaId] = set()
        self._told: dict[ReplicaId, str] = {}
        """What the log last said of a replica that gets no requests."""

    def add(self, replica_id: ReplicaId) -> None:
        """Read for another replica as well."""
        self.replicas.add(replica_id)
        self._cold.add(replica_id)

    def remove(self, replica_id: ReplicaId) -> None:
        """Read for a replica no more; nothing happens where it is not one of this engine's."""
        self.replicas.discard(replica_id)
        self._cold.discard(replica_id)
        self._told.pop(replica_id, None)

    def take_cold(self) -> list[ReplicaId]:
        """Return the replicas that came in without a cache and are ready for requests now, each once."""
        cold = [known for known in self._known() if known.replica_id in self._cold]
        ready = [known for known in cold if known.health.state is State.READY and not known.report.asleep]
        taken = [replica.replica_id for replica in ready if replica.models]
        self._cold.difference_update(taken)
        return taken

    @property
    def any_out(self) -> bool:
        """Whether a replica of it is ejected."""
        return any(replica.health.state is State.EJECTED for replica in self._known())

    async def probe(self) -> None:
        """Ask whether it answers."""
        probe, began_s = self._probe(), self._now()
        if probe is None:
            return
        answer = await _asked(probe, self._house.plane.shortage, began_s)
        if answer is Answer.NONE:
            return
        if answer is Answer.LATE:
            await asyncio.sleep(SWEPT_S)
        elif answer is Answer.GOOD and self.any_out:
            await self._read_before_return()
        for replica in self._known():
            if answer is not Answer.LATE or replica.heard_s < began_s:
                _judge(replica.health, answer, self._now())
        self.tell_changes()

    async def _read_before_return(self) -> None:
        """Read what may have changed: an engine that restarted is known to be cold before requests are sent there."""
        self.models_wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETURN_S):
                await self.read_metrics()

    async def read_metrics(self) -> None:
        """Read how busy it is, and whether it takes requests."""
        async with self._metrics:
            replicas = list(self._known())
            reports = await self._reports(replicas)
            if await self._is_paused():
                reports = [msgspec.structs.replace(report or EngineReport(), asleep=True) for report in reports]
            for replica, report in zip(replicas, reports, strict=True):
                if replica.replica_id in self._house.fleet:
                    self._take(replica.replica_id, report)
        self.tell_changes()

    async def _reports(self, replicas: list[Replica]) -> list[EngineReport | None]:
        """Return a report for each, None for all where the page can't be read."""
        probe = self._probe()
        if probe is None:
            return [None] * len(replicas)
        try:
            reports = await probe.reports([self._house.endpoints[known.replica_id].rank for known in replicas])
        except OSError as error:  # slow, garbled or refused /metrics say nothing of the replica's requests
            LOGGER.debug("metrics of %s can't be read: %s", self._names(), error)
            return [None] * len(replicas)
        return [report or NO_SUCH_RANK for report in reports]

    async def _is_paused(self) -> bool:
        probe = self._probe()
        if probe is None or not self._says_paused:
            return False
        try:
            paused = await probe.paused()
        except OSError:
            return False
        self._says_paused = paused is not None
        return bool(paused)

    def _take(self, replica_id: ReplicaId, report: EngineReport | None) -> None:
        fleet = self._house.fleet
        if report is None:
            fleet.lost_sight_of(replica_id)
            return
        fell_asleep = report.asleep and not fleet[replica_id].report.asleep
        if fleet.observe_engine(replica_id, report, self._now()):
            self._says_paused = True
            self._cold.add(replica_id)
            self.models_wanted.set()
            if self._house.kv_events is not None:
                self._house.kv_events.restarted(replica_id)
            LOGGER.warning("replica %s restarted: its cache is taken to be empty", replica_id)
        if fell_asleep:  # vLLM empties its cache on /sleep and, as it is used by default, on /pause
            fleet.forget_residency(replica_id)
            if self._house.kv_events is not None:
                self._house.kv_events.emptied(replica_id)
            self._cold.add(replica_id)

    async def read_models(self) -> bool:
        """Read which models it serves; return whether it said."""
        probe = self._probe()
        if probe is None:
            return False
        try:
            models = await probe.models()
        except OSError as error:
            LOGGER.debug("models of %s can't be read: %s", self._names(), error)
            return False
        for replica in self._known():
            replica.models = self._house.models.update(replica.replica_id, models)
        return True

    async def try_silent(self) -> None:
        """Have those that were ejected for their silence generate a token: a health check says nothing of that."""
        for replica in list(self._known()):
            probe = self._probe()
            health = replica.health
            if probe is None or health.cause is not Cause.SILENCE or health.state is not State.EJECTED:
                continue
            model = min(replica.models, default="")
            try:
                generated = await probe.generates(model, self._house.endpoints[replica.replica_id].rank)
            except OSError as error:
                LOGGER.debug("replica %s is silent still: %s", replica.replica_id, error)
                continue
            if generated and health.cause is Cause.SILENCE:
                health.succeeded(self._now())
                self.tell_changes()

    def tell_changes(self) -> None:
        """Log which replicas have ceased to get requests since the last look, and which get them again."""
        for replica in self._known():
            name, standing = replica.replica_id, _standing(replica)
            if standing == self._told.get(name, BACK):
                continue
            self._told[name] = standing
            why = f": {replica.health.cause}" if standing is OUT else ""
            LOGGER.warning("replica %s (%s) is %s%s", name, self._house.endpoints[name].url, standing, why)

    def _known(self) -> Iterator[Replica]:
        """Give those of its replicas that are in the fleet."""
        for replica_id in sorted(self.replicas):
            replica = self._house.fleet.get(replica_id)
            if replica is not None and replica_id in self._house.endpoints:
                yield replica

    def _probe(self) -> EngineProbe | None:
        return next((self._house.probes[replica.replica_id] for replica in self._known()), None)

    def _names(self) -> str:
        return ", ".join(sorted(self.replicas))

    def _now(self) -> float:
        return self._house.plane.clock()


def _standing(replica: Replica) -> str:
    if replica.health.state is State.EJECTED:
        return OUT
    return ASLEEP if replica.report.asleep else BACK
