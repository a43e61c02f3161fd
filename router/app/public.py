"""The client port's own answers: models and health. Everything that an engine answers never gets here."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from router.app.house import House
from router.app.pages import ForPages
from router.app.probes import add_probe_routes, readiness


def public_app(house: House) -> FastAPI:
    """Return the application for what is not proxied on the client port."""
    app = FastAPI(title="Warmroute", openapi_url=None)

    @app.head("/v1/models")
    @app.get("/v1/models")
    async def list_models() -> dict[str, object]:
        return house.models.merged()

    add_probe_routes(app, house)

    @app.head("/health")
    @app.get("/health")
    async def health() -> Response:
        return readiness(house)

    @app.exception_handler(HTTPException)
    async def refuse(request: Request, error: HTTPException) -> JSONResponse:
        body = {"message": f"{error.detail}: {request.method} {request.url.path}", "type": "invalid_request_error"}
        return JSONResponse({"error": body | {"param": None, "code": error.status_code}}, error.status_code)

    app.add_middleware(ForPages, door=house.doorway.door)
    return app
