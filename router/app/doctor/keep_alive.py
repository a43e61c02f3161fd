"""For how long an engine keeps an idle connection: one connection each, which nobody uses any more."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

from router.app.doctor.engines import Engine
from router.app.doctor.findings import Check, Finding, Remarks

ROUTER_S = 5.0
"""The router gives up idle connections before this, whatever it is told: the bound of --upstream-keepalive-s."""

DEFAULT_S = 4.0
"""What it does unless told otherwise."""

LOOK_S = 6.0
"""vLLM's own default is 5 s; what lasts longer is long enough."""

ANSWER_S = 5.0


async def check_keep_alive(engine: Engine) -> list[Finding]:
    """Measure an engine's keep-alive."""
    if not engine.is_vllm:
        return []
    try:
        kept_s = await idle_s(engine.place.url)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return [Remarks(engine.place.name).note(Check.KEEP_ALIVE, "could not be measured")]
    return [judge(Remarks(engine.place.name), kept_s)]


def judge(say: Remarks, kept_s: float | None) -> Finding:
    """Say what a keep-alive means; None: the connection outlasted the look."""
    if kept_s is None:
        return say.ok(Check.KEEP_ALIVE, f"idle connections are kept for more than {LOOK_S:g} s")
    # Both clocks tick in other threads: what was measured as 4.99 s is 5 s.
    if kept_s >= ROUTER_S - 0.1:
        return say.ok(Check.KEEP_ALIVE, f"idle connections are kept for {kept_s:.1f} s, the router's for less")
    return say.warning(
        Check.KEEP_ALIVE,
        f"idle connections are kept for {kept_s:.1f} s",
        f"the router keeps its own for {DEFAULT_S:g} s by default, and a request may meet the end of one",
        f"VLLM_HTTP_TIMEOUT_KEEP_ALIVE=5 for the engine, or --upstream-keepalive-s below {kept_s:.1f}",
    )


async def idle_s(url: str) -> float | None:
    """Return after how many idle seconds a server closes a connection; None: not within the look. Raises OSError."""
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    reader, writer = await asyncio.wait_for(asyncio.open_connection(parts.hostname, port, ssl=tls), ANSWER_S)
    try:
        writer.write(f"GET /health HTTP/1.1\r\nhost: {parts.netloc}\r\n\r\n".encode())
        # /health has no body, so the head is the whole answer.
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ANSWER_S)
        loop = asyncio.get_running_loop()
        idle_from_s = loop.time()
        try:
            await asyncio.wait_for(reader.read(), LOOK_S)
        except TimeoutError:
            return None
        return loop.time() - idle_from_s
    finally:
        writer.close()
