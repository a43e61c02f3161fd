"""Web pages before the application: their browsers are answered, and may read what it says."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.proxy.door import Door


class ForPages:
    """Answers browsers that ask whether a page may ask, and lets pages read the application's own answers."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, where CORS is off."""
        cors = self._door.cors
        if scope["type"] != "http" or not cors.on:
            await self._app(scope, receive, send)
            return
        fields = dict(reversed(scope["headers"]))
        if cors.is_preflight(scope["method"].encode(), fields):
            await send({"type": "http.response.start", "status": 204, "headers": cors.preflight_headers(fields)})
            await send({"type": "http.response.body"})
            return
        headers = cors.headers(fields.get(b"origin"))

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._app(scope, receive, send_on)
