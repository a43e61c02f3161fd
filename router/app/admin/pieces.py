"""Long answers, made a piece at a time: no stream stops while somebody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from fastapi.responses import Response

T = TypeVar("T")

AT_ONCE = 50
"""Encoded between two looks at what else is to be done: with score tables of 32 replicas a few milliseconds."""


def json_answer(shown: object) -> Response:
    """Return plain values as JSON, without the detour through a model that FastAPI would take."""
    return Response(msgspec.json.encode(shown), media_type="application/json", headers={"cache-control": "no-store"})


async def encoded(items: Iterable[T], describe: Callable[[T], object]) -> list[msgspec.Raw]:
    """Encode what `describe` makes of each item; what is encoded already goes into an answer as it is."""
    pieces = []
    for number, item in enumerate(list(items), 1):
        pieces.append(msgspec.Raw(msgspec.json.encode(describe(item))))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return pieces
