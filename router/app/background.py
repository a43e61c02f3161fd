"""The loops beside the data plane: watching engines, ending what is silent, keeping the state, sharing it."""

from __future__ import annotations

from functools import partial

from router.adapters.redis_store.allowances import shared_allowances
from router.app.house import House
from router.app.keeping import keep_forever
from router.app.roster.engines import Spawn, Watches, keep_running
from router.app.roster.following import follow, source_loops
from router.app.roster.members import Watching
from router.core.types import ReplicaId


def start_all(house: House, spawn: Spawn) -> Watches:
    """Start all loops through `spawn`; return the watches of the engines, for replicas that come and go."""
    watches = Watches(house, spawn, house.warming)
    house.plane.unknown_model_seen = watches.refresh_models
    house.roster.watching = watching = _Watching(house, watches)
    for replica_id in list(house.endpoints):
        watching.begin(replica_id)
    if house.kv_events is not None:
        spawn(keep_running("following KV cache events", house.kv_events.run))
    if house.toucher is not None:
        spawn(keep_running("touching sessions", house.toucher.run))
    follow(house)
    for loop in source_loops(house):
        spawn(keep_running("finding replicas", loop))
    spawn(keep_running("the sweep", house.plane.sweep_forever))
    spawn(keep_running("watching the key file", house.doorway.watch_forever))
    spawn(keep_running("keeping the state", partial(keep_forever, house)))
    start_sharing(house, spawn)
    return watches


class _Watching:
    """All that follow a replica while it is in the fleet."""

    def __init__(self, house: House, watches: Watches) -> None:
        self._all: list[Watching] = [watches] if house.kv_events is None else [watches, house.kv_events]

    def begin(self, replica_id: ReplicaId) -> None:
        for one in self._all:
            one.begin(replica_id)

    def end(self, replica_id: ReplicaId) -> None:
        for one in self._all:
            one.end(replica_id)


def start_sharing(house: House, spawn: Spawn) -> None:
    """Start the loops that talk to Redis, if there is one."""
    if house.store is None:
        return
    house.store.ordering.changed = partial(follow, house)
    for loop in house.store.loops():
        spawn(keep_running("sharing", loop))
    limits = shared_allowances(house.store, house.doorway.door.allowances)
    spawn(keep_running("sharing limits", limits.share_forever))
