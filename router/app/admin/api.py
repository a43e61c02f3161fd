"""The admin port: metrics, the fleet, the last decisions, and what would be decided for a request."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.process_collector import ProcessCollector

from router import __version__
from router.adapters.decision_log import KEPT
from router.adapters.redis_store.metrics import StoreCollector, describe_redis, describe_routers
from router.app.wiring import House
from router.core.replica import Replica
from router.core.types import Decision, NoReplicaError, RoutingRequest
from router.ports import RequestRecord
from router.proxy.openai import read_request


def admin_app(house: House) -> FastAPI:
    """Return the admin application. Its documentation is at /docs, the schema at /openapi.json."""
    app = FastAPI(title="Warmroute admin API", version=__version__)
    registry = CollectorRegistry()
    registry.register(house.metrics)
    if house.store is not None:
        registry.register(StoreCollector(house.store, house.fleet))
    ProcessCollector(registry=registry)

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/api/fleet")
    async def fleet() -> dict[str, Any]:
        """Every replica: address, state, pressure, ledger, residency, learnt rate, and what its engine says.

        Then all routers that share a Redis with this one, with their ledgers, and how Redis is.
        """
        replicas = [describe(house, replica) for replica in house.fleet]
        return {"policy": house.settings.policy, "replicas": replicas, **describe_sharing(house)}

    @app.get("/api/decisions")
    async def decisions(limit: Annotated[int, Query(ge=1, le=KEPT)] = KEPT) -> list[dict[str, Any]]:
        """The last decisions, newest first, each with its score table."""
        return [describe_record(record) for record in house.decisions.latest(limit)]

    refusals: dict[int | str, dict[str, Any]] = {400: {"description": "Not JSON"}, 503: {"description": "No replica"}}

    @app.post("/api/explain", responses=refusals)
    async def explain(
        request: Request,
        path: Annotated[str, Query(description="The path the body is meant for")] = "/v1/chat/completions",
    ) -> Response:
        """Decide for the request body given, with the headers given; nothing is sent and nothing counted."""
        body = await request.body()
        try:
            msgspec.json.decode(body)
        except msgspec.MsgspecError as error:
            return _refusal(400, f"the body is not JSON: {error}")
        names = house.settings.session_header
        session = next((request.headers[name] for name in names if request.headers.get(name)), None)
        routing = read_request(path, body, session)
        await _ask_store(house, routing)
        try:
            decision = house.fleet.explain(routing, time.monotonic())
        except NoReplicaError:
            return _refusal(503, "no replica is configured")
        blocks = len(routing.prompt.hashes) if routing.prompt else 0
        return JSONResponse({"shape": routing.shape, "blocks": blocks, **describe_decision(decision)})

    return app


async def _ask_store(house: House, request: RoutingRequest) -> None:
    """Let the fleet learn what other routers know of a request, as before a real one."""
    asked = house.plane.question(request)
    if asked is not None and house.store is not None:
        answered = asyncio.Event()
        house.store.ask(asked, lambda _: answered.set())
        await answered.wait()


def _refusal(status: int, message: str) -> JSONResponse:
    body = {"message": message, "type": "invalid_request_error", "param": None, "code": status}
    return JSONResponse({"error": body}, status)


def describe(house: House, replica: Replica) -> dict[str, Any]:
    """Describe a replica for the admin API."""
    now = time.monotonic()
    health = replica.health
    state = "up" if health.up else "ejected"
    return {
        "id": replica.replica_id,
        "url": house.endpoints[replica.replica_id].url,
        "state": "asleep" if replica.report.asleep else state,
        "failures": health.failures,
        "cause": health.cause,
        "models": sorted(replica.models),
        "pressure_ratio": round(replica.pressure_ratio(now), 4),
        "ledger": {"uncached_tokens": replica.ledger.uncached_tokens, "streams": replica.ledger.streams},
        "peer_ledger": {
            "uncached_tokens": replica.peer_load.uncached_tokens,
            "streams": replica.peer_load.streams,
        },
        "prefill_tokens_per_s": round(replica.rate.tokens_per_s),
        "mirror": {
            "blocks": len(replica.mirror),
            "bytes": replica.mirror.held_bytes + replica.mirror.idle_bytes,
        },
        "engine": msgspec.to_builtins(replica.report),
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
    """Describe a finished request with its decision."""
    flat: dict[str, Any] = msgspec.to_builtins(record)
    flat["decision"] = None if record.decision is None else describe_decision(record.decision)
    return flat
