"""Whether streams come through as they are made: the same stream from the engine itself and through the router."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from router.app.doctor.asking import Asker
from router.app.doctor.findings import Check, Finding, Remarks
from router.app.doctor.requests import GENERATE_S

TOKENS = 64
TELLING_S = 0.3
"""An engine that makes a whole stream in less shows nothing."""

BUFFERED_RATIO = 0.2
"""The share of the engine's own duration below which a stream was held back: what passes as it comes takes as long."""


async def duration_s(asker: Asker, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """Return the seconds from a stream's first bytes to its last; None: it did not come."""
    asked = dict(body) | {"stream": True, "max_tokens": TOKENS, "ignore_eos": True}
    loop = asyncio.get_running_loop()
    came_s: list[float] = []
    try:
        async with asyncio.timeout(GENERATE_S), asker.stream("POST", url, headers, asked) as response:
            if response.status_code != 200:
                return None
            async for part in response.aiter_bytes():
                if part:
                    came_s.append(loop.time())
    except (TimeoutError, httpx.HTTPError):
        return None
    return came_s[-1] - came_s[0] if came_s else None


def judge(direct_s: float | None, through_s: float | None) -> Finding:
    """Compare a stream's duration at the engine with the one through the router."""
    say = Remarks("two turns")
    if direct_s is None or through_s is None:
        return say.note(Check.STREAMS, "could not be compared: a stream failed")
    if direct_s < TELLING_S:
        return say.note(Check.STREAMS, f"the engine makes {TOKENS} tokens too quickly to tell")
    if through_s >= direct_s * BUFFERED_RATIO:
        return say.ok(Check.STREAMS, "streams come through as they are made")
    return say.warning(
        Check.STREAMS,
        f"a stream that the engine made in {direct_s:.2f} s came in {through_s:.2f} s through the router's address",
        "something between here and the router gathers streams, so the first token is as late as the last",
        "turn buffering off there: proxy_buffering off in nginx",
    )
