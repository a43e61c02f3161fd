"""What replicas would hold without any touch: a second mirror of each, told of clients' requests alone."""

from __future__ import annotations

from copy import copy

from router.core.index import Index
from router.core.leases import Lease
from router.core.replica import Replica
from router.core.residency import Mirror
from router.core.types import Prompt, ReplicaId


class Shadows:
    """Mirrors without touches. Within as much memory as the index itself may take, at the most."""

    def __init__(self, limit_bytes: int) -> None:
        self._index = Index(limit_bytes)
        self._mirrors: dict[ReplicaId, tuple[Mirror, Mirror]] = {}
        """The shadow, and the mirror that it is of."""
        self._epochs: dict[ReplicaId, int] = {}

    def of(self, replica: Replica) -> Mirror:
        """Return a replica's shadow. A new one begins as its mirror is; one of a mirror that was emptied, empty."""
        known = self._mirrors.get(replica.replica_id)
        if known is None or known[1] is not replica.mirror:
            self.forget(replica.replica_id)
            known = self._mirrors[replica.replica_id] = _copied(replica.mirror), replica.mirror
            self._epochs[replica.replica_id] = replica.mirror.epoch
            self._index.add(known[0])
        shadow = known[0]
        if self._epochs[replica.replica_id] != replica.mirror.epoch:
            self._epochs[replica.replica_id] = replica.mirror.epoch
            self._index.clear(shadow)
        return shadow

    def hold(self, replica: Replica, prompt: Prompt) -> Lease | None:
        """See `Index.hold`."""
        return self._index.hold(self.of(replica), prompt)

    def release(self, replica: Replica, lease: Lease, now: float, computed: bool, answer_bytes: int, kind: int) -> None:
        """See `Mirror.release`."""
        shadow = self.of(replica)
        shadow.capacity_bytes = replica.mirror.capacity_bytes
        self._index.release(shadow, lease, now, computed, answer_bytes, kind)

    def evict_unused_since(self, replica: Replica, stamp: int) -> None:
        """See `Mirror.evict_unused_since`."""
        self._index.evict_unused_since(self.of(replica), stamp)

    def forget(self, replica: ReplicaId) -> None:
        """Drop the shadow of a replica that left."""
        known = self._mirrors.pop(replica, None)
        if known is not None:
            self._index.remove(known[0])


def _copied(mirror: Mirror) -> Mirror:
    """Return a mirror of what is idle in another one."""
    shadow = Mirror()
    shadow.capacity_bytes = mirror.capacity_bytes
    shadow.resume(map(copy, mirror.releases(0.0)), zip(*mirror.answers(), strict=True))
    return shadow
