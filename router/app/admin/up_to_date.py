"""Before anything is answered, all that has happened is accounted for."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from router.proxy.later import Later


class UpToDate:
    """Stands before the admin application."""

    def __init__(self, app: ASGIApp, later: Later) -> None:
        self._app = app
        self._later = later

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Account for what has ended, then pass on."""
        self._later.flush()
        await self._app(scope, receive, send)
