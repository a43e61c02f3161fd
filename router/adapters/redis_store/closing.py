"""Closes clients to their end: one whose closing is cancelled halfway keeps some of its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from redis.asyncio import Redis


async def close(clients: Iterable[Redis]) -> None:
    """Close clients, each within its own time-outs, whatever comes of it. A cancellation waits until that is done."""
    closing = [asyncio.ensure_future(client.aclose()) for client in clients]
    gathered = asyncio.gather(*closing, return_exceptions=True)
    try:
        await asyncio.shield(gathered)
    except asyncio.CancelledError:
        await asyncio.wait(closing)
        raise
