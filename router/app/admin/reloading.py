"""The settings read again, by order of the admin API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, FastAPI
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from router.app.admin.errors import ErrorAnswer
from router.app.admin.replicas import from_here
from router.app.house import House
from router.app.process.reload import reload


class Reloaded(BaseModel):
    """What a reload did."""

    changed: Annotated[list[str], Field(description="Settings that have another value now")]
    needs_restart: Annotated[list[str], Field(description="Settings with another value that takes a restart")]


_UNUSABLE: dict[int | str, dict[str, Any]] = {
    422: {"model": ErrorAnswer, "description": "The settings can't be used, and nothing has changed"}
}


def add_reload_route(app: FastAPI, house: House) -> None:
    """Add /api/reload to an application."""

    @app.post("/api/reload", responses=_UNUSABLE, dependencies=[Depends(from_here)])
    async def reload_settings() -> Reloaded:
        """Read the settings again, from the same flags, environment and file, and take them over in all workers."""
        report = await reload(house)
        if report.error is not None:
            raise HTTPException(422, report.error)
        return Reloaded(changed=list(report.changed), needs_restart=list(report.needs_restart))
