"""What happened: totals, charts, sessions and missed turns."""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from fastapi import FastAPI, Path, Query
from fastapi.responses import JSONResponse, Response

from router.adapters.history.columns import Columns
from router.adapters.history.sessions import MAX_MISSES, MAX_SESSIONS, Session, Turn
from router.app.admin.errors import ErrorAnswer, refusal
from router.app.admin.overview import overview
from router.app.admin.pieces import encoded, json_answer
from router.app.house import House

_JSON: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}}}}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer, "description": "There is no such session"}}


def add_seeing_routes(app: FastAPI, house: House) -> None:
    """Add /api/overview, /api/history, /api/sessions and /api/misses to an application."""
    columns = Columns(house.history)

    @app.get("/api/overview", responses=_JSON, response_class=JSONResponse)
    async def get_overview() -> Response:
        """Requests, tokens, misses and times of the last 5 minutes, hour and day, of the fleet, models and replicas."""
        return json_answer(overview(house))

    @app.get("/api/history", responses=_JSON, response_class=JSONResponse)
    async def history(window: Annotated[Literal["5m", "1h", "24h"], Query()] = "1h") -> Response:
        """The same step by step, as columns; null where no router ran."""
        return json_answer(await columns.show(window))

    @app.get("/api/sessions", responses=_JSON, response_class=JSONResponse)
    async def sessions(
        limit: Annotated[int, Query(ge=1, le=MAX_SESSIONS)] = 100,
        model: Annotated[str | None, Query(description="Only this model's")] = None,
    ) -> Response:
        """The last sessions, last used first."""
        found = (
            (ident, session)
            for ident, session in house.sessions.latest()
            if model is None or session.turns[-1].model == model
        )
        return json_answer([describe_session(ident, session) for ident, session in islice(found, limit)])

    @app.get("/api/sessions/{id}", responses=_JSON | _NOT_FOUND, response_class=JSONResponse)
    async def session(ident: Annotated[str, Path(alias="id", max_length=64)]) -> Response:
        """The turns of one session: where each went, what matched, what missed and why."""
        found = house.sessions.get(ident)
        if found is None:
            return refusal(404, f"there is no session {ident}")
        turns = await encoded(found.turns, _shown)
        return json_answer({"session": ident, "model": found.turns[-1].model, "turns": turns})

    @app.get("/api/misses", responses=_JSON, response_class=JSONResponse)
    async def misses(limit: Annotated[int, Query(ge=1, le=MAX_MISSES)] = 100) -> Response:
        """The last turns that lost tokens, newest first, each with its score table."""
        return json_answer(await encoded(house.sessions.misses(limit), _shown))


def describe_session(ident: str, session: Session) -> dict[str, Any]:
    """Describe a session by its sums and its last turn."""
    last = session.turns[-1]
    return {
        "session": ident,
        "model": last.model,
        "turns": session.turns_seen,
        "last_s": round(session.last_s, 3),
        "replica": last.replica,
        "prompt_tokens": session.prompt_tokens,
        "cached_tokens": session.cached_tokens,
        "lost_tokens": session.lost_tokens,
        "cause": last.cause,
    }


def _shown(turn: Turn) -> Turn:
    """Return a turn with its score table best first."""
    scores = sorted(turn.scores, key=attrgetter("total_s"))
    return msgspec.structs.replace(turn, at_s=round(turn.at_s, 3), scores=scores)
