"""The loops beside the data plane: watching engines, ending what is silent, keeping the state, sharing it."""

from __future__ import annotations

from functools import partial

from router.adapters.redis_store.allowances import shared_allowances
from router.app.house import House
from router.app.keeping import keep_forever
from router.app.roster.engines import Spawn, Watches, keep_running
from router.app.roster.following import follow, source_loops


def start_all(house: House, spawn: Spawn) -> Watches:
    """Start all loops through `spawn`; return the watches of the engines, for replicas that come and go."""
    watches = Watches(house, spawn, house.warming)
    house.plane.unknown_model_seen = watches.refresh_models
    for replica_id in list(house.endpoints):
        watches.begin(replica_id)
    house.roster.watching = watches
    follow(house)
    for loop in source_loops(house):
        spawn(keep_running("finding replicas", loop))
    spawn(keep_running("the sweep", house.plane.sweep_forever))
    spawn(keep_running("watching the key file", house.doorway.watch_forever))
    spawn(keep_running("keeping the state", partial(keep_forever, house)))
    start_sharing(house, spawn)
    return watches


def start_sharing(house: House, spawn: Spawn) -> None:
    """Start the loops that talk to Redis, if there is one."""
    if house.store is None:
        return
    house.store.ordering.changed = partial(follow, house)
    for loop in house.store.loops():
        spawn(keep_running("sharing", loop))
    limits = shared_allowances(house.store, house.doorway.door.allowances)
    spawn(keep_running("sharing limits", limits.share_forever))
