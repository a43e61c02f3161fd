"""Other routers of the same fleet: what they have under way, and what their requests leave in the engines' caches.

A router takes the others' requests into its own mirrors as if it had sent them, evictions included. So all know what
each knows, and a session may meet another router at every turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from router.core.fleet import Fleet
from router.core.leases import Lease
from router.core.news import Bulletin, News, Opened, Settled
from router.core.replica import IDLE, Load, Replica
from router.core.types import ReplicaId

SILENT_S = 3.0
"""A router not heard of for so long is gone, and with it what it had under way: three heartbeats."""


class Peer:
    """One other router, by its own account."""

    __slots__ = ("heard_s", "last_opened", "loads", "open")

    def __init__(self, now: float) -> None:
        self.heard_s = now
        self.loads: dict[ReplicaId, Load] = {}
        """What it has under way, replicas without anything left out."""
        self.open: dict[int, tuple[Replica, Lease | None]] = {}
        """Requests heard to be sent and not yet to have ended, by the numbers of its tickets."""
        self.last_opened = -1
        """Number of the last request heard to be sent: they grow, so one that is not higher is no news."""


class Peers:
    """All other routers."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._peers: dict[str, Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, router: str) -> bool:
        return router in self._peers

    def __iter__(self) -> Iterator[tuple[str, Peer]]:
        return iter(self._peers.items())

    def hear(self, router: str, bulletin: Bulletin, now: float) -> None:
        """Take in a bulletin of another router."""
        if bulletin.leaving:
            self.forget(router, now)
            return
        peer = self._peers.get(router)
        if peer is None:
            peer = self._peers[router] = Peer(now)
        peer.heard_s = now
        for news in bulletin.news:
            self._take_in(peer, news, now)
        for number in [number for number in peer.open if number < bulletin.oldest_open]:
            self._close(peer, number, now)
        self._count(peer, bulletin)

    def expire(self, now: float) -> list[str]:
        """Forget the routers that have fallen silent; return them."""
        gone = [router for router, peer in self._peers.items() if now - peer.heard_s > SILENT_S]
        for router in gone:
            self.forget(router, now)
        return gone

    def forget(self, router: str, now: float) -> None:
        """Count out what a router had under way: it has said that it leaves, or says nothing any more."""
        peer = self._peers.pop(router, None)
        if peer is not None:
            for number in list(peer.open):
                self._close(peer, number, now)
            self._sum_up(peer.loads)

    def _take_in(self, peer: Peer, news: News, now: float) -> None:
        if isinstance(news, Opened):
            self._open(peer, news, now)
        elif isinstance(news, Settled):
            self._settle(peer, news, now)
        elif news.replica in self._fleet:
            self._fleet.index.homes.put(news.key, news.replica)

    def _open(self, peer: Peer, news: Opened, now: float) -> None:
        fleet = self._fleet
        replica = fleet.get(news.replica)
        if replica is None or news.number <= peer.last_opened:
            return
        peer.last_opened = news.number
        fleet.count_chosen(replica)
        replica.recent.add(news.uncached_tokens / replica.prefill.tokens_per_s, now)
        prompt = news.prompt()
        lease = None if prompt is None else fleet.index.hold(replica.mirror, prompt)
        peer.open[news.number] = replica, lease
        fleet.index.turns.put_links(news.links)
        if news.session is not None:
            fleet.index.homes.put(news.session, news.replica)

    def _settle(self, peer: Peer, news: Settled, now: float) -> None:
        index = self._fleet.index
        replica, lease = peer.open.pop(news.number, (None, None))
        if replica is not None and lease is not None:
            replica.size_cache(news.bytes_per_token)
            if news.overestimated and lease.stale_stamp >= 0:
                index.evict_unused_since(replica.mirror, lease.stale_stamp)
            index.release(replica.mirror, lease, now, news.computed, news.answer_bytes)
        index.turns.put_links(news.links)

    def _close(self, peer: Peer, number: int, now: float) -> None:
        """Release a request whose end was not heard of; its prompt has most likely been computed."""
        replica, lease = peer.open.pop(number, (None, None))
        if replica is not None and lease is not None:
            self._fleet.index.release(replica.mirror, lease, now)

    def _count(self, peer: Peer, bulletin: Bulletin) -> None:
        changed = dict(bulletin.loads)
        if bulletin.whole:
            changed = dict.fromkeys(peer.loads, IDLE) | changed
        for replica_id, load in changed.items():
            if load == IDLE:
                peer.loads.pop(replica_id, None)
            else:
                peer.loads[replica_id] = load
        self._sum_up(changed)

    def _sum_up(self, replica_ids: Iterable[ReplicaId]) -> None:
        """Add up what all peers have under way. Sums are made anew, so that nothing is left over."""
        for replica_id in replica_ids:
            replica = self._fleet.get(replica_id)
            if replica is not None:
                loads = [peer.loads[replica_id] for peer in self._peers.values() if replica_id in peer.loads]
                replica.peer_load = Load(*map(sum, zip(*loads, strict=True))) if loads else IDLE
