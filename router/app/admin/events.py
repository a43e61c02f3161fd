"""Server-sent events: the overview every two seconds, and decisions as they are made, to all who listen.

What is sent is made once for all listeners, and not at all while there are none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from router.app.admin.describe import describe_record
from router.app.admin.feed import Feed, Listener, event
from router.app.admin.overview import overview
from router.app.house import House
from router.app.roster.engines import keep_running

TICK_S = 0.25
"""How long a decision may wait for others, to be sent with them."""

TICKS_PER_S = 4
OVERVIEW_TICKS = 8
"""An overview every two seconds. It keeps the connection open as well: proxies end one that is silent for longer."""

HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""The second has nginx pass events on as they come."""

_SHOWN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Events `overview`, `decision` and `skipped`"}
}


def add_event_route(app: FastAPI, house: House) -> None:
    """Add /api/events to an application."""
    broadcast = Broadcast(house)

    @app.get("/api/events", responses=_SHOWN, response_class=StreamingResponse)
    async def events() -> StreamingResponse:
        """Server-sent events: an overview at once and every 2 s, and decisions as requests finish, up to 20 a second.

        One that does not read gets the newest overview when it reads again, and is told how many decisions it missed.
        """
        return EventStream(broadcast)


class EventStream(StreamingResponse):
    """The answer to one who listens, for as long as he does."""

    def __init__(self, broadcast: Broadcast) -> None:
        super().__init__((), headers=HEADERS, media_type="text/event-stream")
        self._broadcast = broadcast

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until he leaves or the router stops."""
        with self._broadcast.listening() as listener:
            self.body_iterator = self._broadcast.events(listener)
            await super().__call__(scope, receive, send)


class Broadcast:
    """Makes what is sent, and sends it to all listeners."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._feed: Feed = house.feed
        self._task: asyncio.Future[None] | None = None
        """Runs while there are listeners."""

    @contextlib.contextmanager
    def listening(self) -> Iterator[Listener]:
        """Have somebody listen until the end of the block."""
        with self._feed.listening() as listener:
            if self._task is None:
                self._task = asyncio.ensure_future(keep_running("sending events", self._run))
            try:
                listener.put_overview(self._overview())
                yield listener
            finally:
                if len(self._feed.listeners) == 1:
                    self._task.cancel()
                    self._task = None

    async def events(self, listener: Listener) -> AsyncIterator[bytes]:
        """Give what is to be sent to one listener, until the end or until the admin port wants another token."""
        token = self._house.settings.admin_token
        while (events := await listener.take()) is not None and self._house.settings.admin_token == token:
            yield events

    async def _run(self) -> None:
        ticks = 0
        while not self._feed.closed.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._feed.closed.wait(), TICK_S)
            ticks += 1
            self._tick(ticks)

    def _tick(self, ticks: int) -> None:
        listeners = self._feed.listeners
        for record in self._feed.pending():
            decision = event("decision", describe_record(record))
            for listener in listeners:
                listener.put_decision(decision)
        skipped = 0 if ticks % TICKS_PER_S else self._feed.next_second()
        shown = b"" if ticks % OVERVIEW_TICKS else self._overview()
        for listener in listeners:
            if skipped:
                listener.skip(skipped)
            if shown:
                listener.put_overview(shown)

    def _overview(self) -> bytes:
        return event("overview", overview(self._house))
