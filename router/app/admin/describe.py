"""What the admin API shows: replicas, decisions, finished requests, the other routers and Redis."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from router.adapters.redis_store.metrics import describe_redis, describe_routers
from router.app.house import House
from router.app.roster.members import Member
from router.core.queue import Queue
from router.core.replica import Replica
from router.core.types import Decision
from router.core.waiting import Priority
from router.ports import Endpoint, RequestRecord

_UNIX_S = time.time() - time.monotonic()
"""Taken once, so that one moment is always shown alike."""


def describe_all(house: House) -> list[dict[str, Any]]:
    """Describe every replica."""
    members = house.roster.members()
    return [describe(house, replica, members.get(replica.replica_id)) for replica in house.fleet]


def describe(house: House, replica: Replica, member: Member | None) -> dict[str, Any]:
    """Describe a replica, and what the roster says of it."""
    now = time.monotonic()
    health, endpoint = replica.health, house.endpoints[replica.replica_id]
    return {
        "id": replica.replica_id,
        "name": None if member is None else member.name,
        "url": endpoint.url,
        "rank": endpoint.rank,
        "state": health.state.value,
        "since_s": round(health.since_s + _UNIX_S, 3),
        "cause": health.cause,
        "failures": health.failures,
        "asleep": replica.report.asleep,
        "drained_by": drained_by(endpoint, member),
        "sources": [] if member is None else list(member.sources),
        "labels": dict(endpoint.labels),
        "weight": endpoint.weight,
        "models": sorted(replica.models),
        "pressure_ratio": round(replica.pressure_ratio(now), 4),
        "ledger": {"uncached_tokens": replica.ledger.uncached_tokens, "streams": replica.ledger.streams},
        "peer_ledger": {
            "uncached_tokens": replica.peer_load.uncached_tokens,
            "streams": replica.peer_load.streams,
        },
        "prefill_tokens_per_s": round(replica.prefill.tokens_per_s),
        "mirror": {
            "blocks": len(replica.mirror),
            "bytes": replica.mirror.held_bytes + replica.mirror.idle_bytes,
        },
        "engine": msgspec.to_builtins(replica.report),
        "accuracy": house.metrics.accuracy.describe(replica.replica_id),
        "kv_events": None if house.kv_events is None else house.kv_events.describe(replica.replica_id),
        "warm_up": None if house.warming is None else house.warming.describe(replica.replica_id),
    }


def drained_by(endpoint: Endpoint, member: Member | None) -> str | None:
    """Return who wants a replica to be drained: an operator, or the source that says it is about to be stopped."""
    if member is not None and member.drained:
        return "operator"
    return "source" if endpoint.leaving else None


def describe_queue(queue: Queue) -> dict[str, Any]:
    """Describe the requests that wait in the router."""
    return {
        "requests": {priority.name.lower(): queue.count(priority) for priority in Priority},
        "bytes": queue.bytes,
    }


def describe_sharing(house: House) -> dict[str, Any]:
    """Describe the routers that share what they know, and Redis; nobody and null for a router on its own."""
    if house.store is None:
        return {"routers": [], "redis": None}
    routers = describe_routers(house.store, house.fleet, time.monotonic())
    return {"routers": routers, "redis": describe_redis(house.store)}


def describe_decision(decision: Decision) -> dict[str, Any]:
    """Describe a decision with its score table, best first."""
    ranked = sorted(decision.scores, key=lambda score: score.total_s)
    return {
        "replica": decision.replica,
        "reason": decision.reason,
        "home": decision.home,
        "prompt_tokens": decision.prompt_tokens,
        "matched_tokens": decision.matched_tokens,
        "alternates": decision.alternates,
        "scores": msgspec.to_builtins(ranked),
    }


def describe_record(record: RequestRecord) -> dict[str, Any]:
    """Describe a finished request with its decision. `at_s`: the Unix time of its arrival."""
    flat: dict[str, Any] = msgspec.to_builtins(record)
    flat["at_s"] = round(flat.pop("ended_s") - record.total_s + _UNIX_S, 3)
    flat["decision"] = None if record.decision is None else describe_decision(record.decision)
    return flat
