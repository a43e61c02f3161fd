"""What vLLM releases lack, as far as a router notices. Read in their packages; those in between were not looked at."""

from __future__ import annotations

from router.app.doctor.engines import release

OLDEST = (0, 27, 0)
"""Before it the router still works, and nothing newer than 0.19.1 was looked at."""

_SINCE = (
    ((0, 27, 0), "how many tokens an answer put into the cache (created_cache_tokens), why requests wait"),
    ((0, 30, 0), "session_id in bodies, --max-num-queued-reqs, --sse-keep-alive-interval"),
    ((0, 32, 0), "which tier of the cache gave a hit, refusals by queue limit, /kv_event_sources"),
)


def lacks(version: str | None) -> list[str]:
    """Return what a version lacks, oldest first; nothing for one that is not understood."""
    found = release(version)
    return [] if found is None else [what for since, what in _SINCE if found < since]


def too_old(version: str | None) -> bool:
    """Tell whether a version is older than those that the router is made for."""
    found = release(version)
    return found is not None and found < OLDEST
