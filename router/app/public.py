"""The client port's own answers: models and health. Everything that an engine answers never gets here."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from router.app.house import House
from router.app.pages import ForPages

READING = ["GET", "HEAD"]


def public_app(house: House) -> FastAPI:
    """Return the application for what is not proxied on the client port."""
    app = FastAPI(title="Warmroute", openapi_url=None)

    @app.api_route("/v1/models", methods=READING)
    async def list_models() -> dict[str, object]:
        return house.models.merged()

    @app.api_route("/livez", methods=READING)
    async def live() -> Response:
        return Response()

    @app.api_route("/health", methods=READING)
    @app.api_route("/readyz", methods=READING)
    async def ready() -> Response:
        return JSONResponse(*_readiness(house))

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        body = {"message": f"{error.detail}: {request.method} {request.url.path}", "type": "invalid_request_error"}
        return JSONResponse({"error": body | {"param": None, "code": error.status_code}}, error.status_code)

    app.add_middleware(ForPages, door=house.doorway.door)
    return app


def _readiness(house: House) -> tuple[dict[str, object], int]:
    """Say whether requests can be served: 200 while at least one replica is up, 503 otherwise."""
    up = sum(replica.health.up and not replica.report.asleep for replica in house.fleet)
    if not house.gate.open:
        return {"status": "stopping", "replicas": len(house.fleet), "up": up}, 503
    status = "ok" if up else "no replica is up" if len(house.fleet) else "no replica is configured"
    return {"status": status, "replicas": len(house.fleet), "up": up}, 200 if up else 503
