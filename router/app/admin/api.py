"""The admin port: the fleet, the last decisions, what would be decided for a request; the rest is beside this."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response

from router import __version__
from router.adapters.decision_log import KEPT
from router.app.admin.describe import (
    describe_all,
    describe_decision,
    describe_queue,
    describe_record,
    describe_sharing,
)
from router.app.admin.errors import ErrorAnswer, refusal, refuse_in_openai_form
from router.app.admin.events import add_event_route
from router.app.admin.exposition import add_metrics_route
from router.app.admin.guard import AdminGuard
from router.app.admin.pieces import encoded, json_answer
from router.app.admin.reloading import add_reload_route
from router.app.admin.replicas import add_replica_routes
from router.app.admin.seeing import add_seeing_routes
from router.app.admin.up_to_date import UpToDate
from router.app.dashboard.serving import add_page
from router.app.house import House
from router.app.probes import add_probe_routes
from router.core.types import NoReplicaError, RoutingRequest, UnknownModelError, Usage
from router.proxy.inquiry import Inquiry
from router.proxy.openai import read_request


def admin_app(house: House) -> FastAPI:
    """Return the admin application. Its schema is at /openapi.json; FastAPI's own pages would load from elsewhere."""
    app = FastAPI(title="Warmroute admin API", version=__version__, docs_url=None, redoc_url=None)
    refuse_in_openai_form(app)
    add_metrics_route(app, house)
    add_probe_routes(app, house)
    add_replica_routes(app, house)
    add_reload_route(app, house)
    add_seeing_routes(app, house)
    add_event_route(app, house)
    add_page(app)

    @app.get("/api/fleet")
    async def fleet() -> dict[str, Any]:
        """Every replica: address, state, pressure, ledger, residency, learnt rate, and what its engine says.

        Then what waits in the router, all routers that share a Redis with this one, with their ledgers, and how Redis
        is.
        """
        queue = describe_queue(house.plane.admission.queue)
        return {
            "policy": house.settings.policy,
            "replicas": describe_all(house),
            "queue": queue,
            **describe_sharing(house),
        }

    @app.get("/api/decisions", response_class=JSONResponse)
    async def decisions(limit: Annotated[int, Query(ge=1, le=KEPT)] = KEPT) -> Response:
        """The last decisions, newest first, each with its score table."""
        return json_answer(await encoded(house.decisions.latest(limit), describe_record))

    refusals: dict[int | str, dict[str, Any]] = {
        400: {"model": ErrorAnswer, "description": "Not JSON"},
        404: {"model": ErrorAnswer, "description": "No replica serves the model"},
        503: {"model": ErrorAnswer, "description": "No replica"},
    }

    @app.post("/api/explain", responses=refusals)
    async def explain(
        request: Request,
        path: Annotated[str, Query(description="The path the body is meant for")] = "/v1/chat/completions",
    ) -> Response:
        """Decide for the request body given, with the headers given; nothing is sent and nothing counted."""
        body = await request.body()
        try:
            msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            return refusal(400, f"the body is not JSON: {error}")
        names = house.settings.session_header
        session = next((request.headers[name] for name in names if request.headers.get(name)), None)
        routing = read_request(path, body, session)
        routing = await _prepared(house, routing, body)
        try:
            decision = house.fleet.explain(routing, time.monotonic())
        except NoReplicaError:
            return refusal(503, "no replica is configured")
        except UnknownModelError:
            return refusal(404, f"no replica serves the model {routing.model}", "model")
        blocks = len(routing.prompt.hashes) if routing.prompt else 0
        plane = house.plane
        turn = plane.account(plane.recognise(routing, time.monotonic()), routing, decision, Usage())
        said = {"shape": routing.shape, "blocks": blocks, **describe_decision(decision)}
        return JSONResponse(said | {"turn": msgspec.to_builtins(turn)})

    app.add_middleware(UpToDate, later=house.plane.later)
    app.add_middleware(AdminGuard, settings=lambda: house.settings)
    return app


async def _prepared(house: House, request: RoutingRequest, body: bytes) -> RoutingRequest:
    """Ask what is asked before a real request is routed: other routers, the tokenizer."""
    plane, answered, prepared = house.plane, asyncio.Event(), [request]

    def take(known: RoutingRequest, _taught: bool) -> None:
        prepared[0] = known
        answered.set()

    Inquiry(request, take).ask(plane.store, plane.question(request), plane.tokenizer, body)
    await answered.wait()
    return prepared[0]
