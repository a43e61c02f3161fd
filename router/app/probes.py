"""What health checks ask, on both ports: a kubelet has no client certificate, where the client port wants one."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response

from router.app.house import House


def add_probe_routes(app: FastAPI, house: House) -> None:
    """Add /livez and /readyz to an application."""

    @app.head("/livez", include_in_schema=False)
    @app.get("/livez", response_class=Response)
    async def live() -> Response:
        """200 with an empty body while the process runs."""
        return Response()

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz", response_class=JSONResponse)
    async def ready() -> Response:
        """200 while at least one replica is up and awake, and the router is not told to stop; else 503."""
        return readiness(house)


def readiness(house: House) -> Response:
    """Return whether requests can be served: 200 while at least one replica is up, 503 otherwise."""
    up = sum(replica.health.up and not replica.report.asleep for replica in house.fleet)
    said: dict[str, object] = {"replicas": len(house.fleet), "up": up}
    if not house.gate.open:
        return JSONResponse({"status": "stopping"} | said, 503)
    status = "ok" if up else "no replica is up" if len(house.fleet) else "no replica is configured"
    return JSONResponse({"status": status} | said, 200 if up else 503)
