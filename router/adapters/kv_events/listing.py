"""Asks an engine where it publishes its KV cache events."""

from __future__ import annotations

import httpx


async def ask_sources(client: httpx.AsyncClient, url: str) -> object:
    """Return the answer of /kv_event_sources. Raises OSError where it can't be read, LookupError without the route."""
    try:
        response = await client.get(f"{url}/kv_event_sources")
    except httpx.HTTPError as error:
        raise OSError(str(error)) from error
    if response.status_code in {404, 405}:
        raise LookupError(f"{url} has no /kv_event_sources")
    if not response.is_success:
        raise OSError(f"/kv_event_sources answers {response.status_code}")
    try:
        listing: object = response.json()
    except ValueError as error:
        raise OSError("/kv_event_sources answers no JSON") from error
    return listing
