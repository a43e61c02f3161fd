"""Everything a running router consists of, and the replicas in all its books."""

from __future__ import annotations

import asyncio
import functools
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import xxhash

from router.adapters.decision_log import DecisionLog
from router.adapters.history.counting import History
from router.adapters.history.sessions import SessionLog
from router.adapters.metrics.collector import RouterCollector
from router.adapters.queue_metrics import QueueCollector
from router.adapters.redis_store.store import RedisStore
from router.adapters.request_log import RequestLog
from router.adapters.vllm_metrics import VllmProbe
from router.app.admin.feed import Feed
from router.app.doorway import Doorway
from router.app.process.gate import Gate
from router.app.process.reloads import Reloads
from router.app.recording import Recording
from router.app.roster.members import Roster
from router.app.roster.models import ModelList
from router.app.roster.touching import Toucher
from router.app.roster.warming import Warming
from router.app.settings.model import Settings
from router.core.fleet import Fleet
from router.core.snapshot import Snapshot, restore_replica
from router.core.types import ReplicaId
from router.ports import Discovery, Endpoint, EngineProbe
from router.proxy.plane import Plane
from router.proxy.pool import Address

if TYPE_CHECKING:  # their packages are optional extras
    from router.adapters.kv_events.following import KvEvents
    from router.adapters.tokenizer.service import TokenizerThreads
    from router.adapters.tracing.tracer import OtlpTracer


@dataclass(slots=True)
class House:
    """Everything a running router consists of."""

    settings: Settings
    """Those in force: a reload puts others in their place."""
    fleet: Fleet
    plane: Plane
    probes: dict[ReplicaId, EngineProbe]
    endpoints: dict[ReplicaId, Endpoint]
    """For the admin API and the log only: clients see ids."""
    models: ModelList
    decisions: DecisionLog
    history: History
    sessions: SessionLog
    feed: Feed
    """To those who watch the admin port's events."""
    metrics: RouterCollector
    queue_metrics: QueueCollector
    client: httpx.AsyncClient
    request_log: RequestLog | None
    store: RedisStore | None
    """What is shared with other routers; None for a router on its own."""
    salt: bytes
    """Key of the replicas' ids."""
    doorway: Doorway
    roster: Roster
    """Which replicas there are to be; `following.follow` makes the fleet so."""
    sources: tuple[Discovery, ...]
    """Where replicas are found, in the order of the settings."""
    warming: Warming | None
    """Warms replicas up that come in cold; None: nothing does."""
    gate: Gate
    reloads: Reloads
    recording: Recording
    tracer: OtlpTracer | None = None
    """None where nothing is traced."""
    kv_events: KvEvents | None = None
    """None where engines' caches are not followed."""
    tokenizer: TokenizerThreads | None = None
    """None where prompts go by their bytes."""
    toucher: Toucher | None = None
    """None where no session is touched."""
    state_kept: bool = True
    """Whether the last attempt to write the state file did not fail."""
    remembered: Snapshot | None = None
    """What was known before the start, while replicas may still be found that it tells of."""

    async def close(self) -> None:
        """Give everything back; when nothing uses it any more."""
        self.feed.close()
        self.plane.close()
        if self.request_log is not None:
            self.request_log.flush()
        closing = [self.recording.close()]
        if self.store is not None:
            closing.append(self.store.close())
        if self.kv_events is not None:
            closing.append(self.kv_events.close())
        if self.tracer is not None:
            closing.append(self.tracer.export.close())
        await asyncio.gather(*closing)  # together they have as long as one would
        await self.client.aclose()


def add_replica(house: House, endpoint: Endpoint) -> ReplicaId:
    """Take a replica into every book; return its id."""
    replica_id = replica_id_of(house.salt, endpoint)
    parts = urlsplit(endpoint.url)
    tls = engine_tls() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    house.endpoints[replica_id] = endpoint
    house.probes[replica_id] = VllmProbe(house.client, endpoint.url)
    replica = house.plane.add_replica(replica_id, Address(parts.hostname or "", port, tls), endpoint.rank)
    house.fleet.weigh(replica_id, endpoint.weight)
    replica.models = frozenset(endpoint.models)
    if house.remembered is not None:
        restore_replica(house.fleet, house.remembered, replica_id, house.plane.clock())
    return replica_id


def remove_replica(house: House, replica_id: ReplicaId) -> None:
    """Take a replica out of every book; what runs there ends as it would."""
    house.plane.remove_replica(replica_id)
    house.metrics.forget(replica_id)
    house.history.forget(replica_id)
    house.models.forget(replica_id)
    if house.warming is not None:
        house.warming.forget(replica_id)
    if house.toucher is not None:
        house.toucher.forget(replica_id)
    if house.kv_events is not None:
        house.kv_events.end(replica_id)
    del house.probes[replica_id], house.endpoints[replica_id]


def replica_id_of(salt: bytes, endpoint: Endpoint) -> ReplicaId:
    """Return the salted hash of what makes a replica itself: stable while the salt is."""
    rank = "" if endpoint.rank is None else f"#{endpoint.rank}"
    return "r-" + xxhash.xxh3_64_hexdigest(salt + f"{endpoint.url}{rank}{endpoint.uid}".encode())[:8]


@functools.cache
def engine_tls() -> ssl.SSLContext:
    """Return how engines' certificates are checked: by the system's authorities, in the data plane and beside it."""
    return ssl.create_default_context()
