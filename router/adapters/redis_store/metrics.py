"""Shows the store to Prometheus, and to the admin API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from router.adapters.metrics.families import counter_family, gauge_family, histogram_family
from router.adapters.redis_store.state import State
from router.adapters.redis_store.store import RedisStore
from router.core.fleet import Fleet
from router.core.replica import Load
from router.core.types import ReplicaId

RESULTS = ("found", "nothing", "late", "failed")
"""How a question ends."""


class StoreCollector(Collector):
    """What passes between this router and Redis, and what the other routers have under way."""

    def __init__(self, store: RedisStore, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """Make Prometheus' objects of the store as it is now."""
        store, counts = self._store, self._store.counts
        states = (((state,), int(state is store.state)) for state in State)
        yield gauge_family("warmroute_redis_state", "1 for the state Redis is in.", ("state",), states)
        results = (((result,), counts.results.get(result, 0)) for result in RESULTS)
        yield counter_family(
            "warmroute_redis_reads", "Requests for which Redis was asked, by result.", ("result",), results
        )
        for name, text, histogram in (
            ("read", "From asking Redis to its answer.", counts.read_seconds),
            ("write", "From telling Redis to its answer.", counts.write_seconds),
        ):
            yield histogram_family(f"warmroute_redis_{name}_seconds", text, (), [((), histogram)])
        yield CounterMetricFamily("warmroute_redis_commands", "Commands sent to Redis.", counts.commands)
        dropped = (((what,), count) for what, count in store.outbox.dropped.items())
        yield counter_family("warmroute_redis_dropped", "Given up while Redis was away.", ("what",), dropped)
        yield GaugeMetricFamily("warmroute_redis_backlog", "News and turns not sent yet.", len(store.outbox))
        yield CounterMetricFamily(
            "warmroute_redis_unread", "Bulletins of routers with another secret or version.", store.hearing.unread
        )
        yield GaugeMetricFamily("warmroute_known_routers", "Routers, this one included.", 1 + len(store.peers))
        yield from self._peer_loads()

    def _peer_loads(self) -> Iterator[Metric]:
        loads = [((replica.replica_id,), replica.peer_load) for replica in self._fleet]
        tokens = ((labels, load.uncached_tokens) for labels, load in loads)
        yield gauge_family(
            "warmroute_peer_ledger_tokens", "Uncached tokens that other routers have sent.", ("replica",), tokens
        )
        streams = ((labels, load.streams) for labels, load in loads)
        yield gauge_family(
            "warmroute_peer_inflight_requests", "Requests of other routers in flight.", ("replica",), streams
        )


def describe_redis(store: RedisStore) -> dict[str, Any]:
    """Describe how Redis is, for the admin API."""
    return {
        "address": str(store.options.address),
        "state": store.state,
        "cause": store.link.condition.cause,
        "backlog": len(store.outbox),
        "dropped": dict(store.outbox.dropped),
    }


def describe_routers(store: RedisStore, fleet: Fleet, now: float) -> list[dict[str, Any]]:
    """Describe all routers with their ledgers, this one first."""
    own = {replica.replica_id: replica.load for replica in fleet}
    routers: list[dict[str, Any]] = [{"id": store.router, "self": True, "heard_s": 0.0, "ledgers": _ledgers(own)}]
    for router, peer in sorted(store.peers):
        heard_s = round(now - peer.heard_s, 3)
        routers.append({"id": router, "self": False, "heard_s": heard_s, "ledgers": _ledgers(peer.loads)})
    return routers


def _ledgers(loads: dict[ReplicaId, Load]) -> dict[ReplicaId, dict[str, int]]:
    return {replica: load._asdict() for replica, load in loads.items() if load != Load()}
