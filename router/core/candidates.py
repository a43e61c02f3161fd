"""Who may be asked: failed, draining and excluded replicas are out before affinity is looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from router.core.health import State
from router.core.replica import Replica
from router.core.tokens import TurnEnds
from router.core.types import Prompt, ReplicaId, UnknownModelError


class Candidates(NamedTuple):
    """The replicas that a request may be sent to."""

    replicas: list[Replica]
    last_resort: bool = False
    """None of them is fit: a connection that is refused at once costs less than refusing everybody."""


def candidates(
    everyone: Collection[Replica],
    model: str,
    now: float,
    excluded: Collection[ReplicaId],
    forward_unknown: bool,
    pinned: ReplicaId | None,
) -> Candidates:
    """Return the replicas that may be tried; none where the fleet is empty or wholly excluded.

    `pinned` stores what the request names: it is asked even while it drains. A request without a model goes anywhere.
    Raises UnknownModelError where all have said what they serve and none serves `model`, unless `forward_unknown`:
    then any of them may answer for itself.
    """
    ready = _fit(everyone, model, now, excluded)
    if pinned is not None:
        ready += [r for r in everyone if r.replica_id == pinned and r.health.state is State.DRAINING and not excluded]
    if ready:
        return Candidates(ready)
    serving = [replica for replica in everyone if replica.serves(model)]
    if serving or not everyone:
        return _least_unfit([replica for replica in serving if replica.replica_id not in excluded])
    if not forward_unknown:
        raise UnknownModelError(model)
    return candidates(everyone, "", now, excluded, forward_unknown, None)


def _fit(everyone: Collection[Replica], model: str, now: float, excluded: Collection[ReplicaId]) -> list[Replica]:
    return [replica for replica in everyone if fit(replica, model, now) and replica.replica_id not in excluded]


def fit(replica: Replica, model: str, now: float) -> bool:
    """Tell whether a replica may be sent requests for a model."""
    return (
        (replica.health.up or replica.health.available(now))
        and not replica.report.asleep
        and (not replica.models or model in replica.models or not model)
    )


def _least_unfit(allowed: list[Replica]) -> Candidates:
    """Rather one that drains than one that fails, rather one that fails than one that sleeps and never answers."""
    awake = [replica for replica in allowed if not replica.report.asleep]
    draining = [replica for replica in awake if replica.health.state is State.DRAINING and replica.health.cause is None]
    return Candidates(draining or awake or allowed, last_resort=True)


def lost_home(
    everyone: Iterable[Replica], candidates: list[Replica], prompt: Prompt, anchor: int, turns: TurnEnds
) -> ReplicaId | None:
    """Return a replica that may not be asked and holds more of a session's history than all that may.

    `anchor`: blocks up to the last turn end that a candidate holds.
    """
    present = {replica.replica_id for replica in candidates}
    for replica in everyone:
        if replica.replica_id not in present:
            matched = replica.mirror.match(prompt.hashes)
            if turns.deepest(prompt, matched).blocks > anchor:
                return replica.replica_id
    return None
