"""How late the demo's own processes are. On a machine that is too busy, the demo's times are the machine's."""

import asyncio
import contextlib
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

LOOK_EVERY_S = 0.1
"""Often enough for a p95 of some seconds, and next to nothing beside the chats."""

_CLIENT = "client"


@dataclass(slots=True)
class Lateness:
    """What was seen in one run: seconds on the wall, by process.

    The client's are by how much later than planned it went on, so late were its arrivals; another process's are how
    long it took for an answer that takes no time: a simulated replica's events were late by as much.
    """

    seen_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def p95_s(self, time_scale: float) -> dict[str, float]:
        """Return 95th percentiles by process, in seconds of replicas that run `time_scale` times faster than life."""
        return {process: _p95(late_s) * time_scale for process, late_s in self.seen_s.items()}


async def watch(urls: Mapping[str, str], lateness: Lateness) -> None:
    """Look, until cancelled, how late this event loop is, and how long each process takes to answer at its URL."""
    loop = asyncio.get_running_loop()
    async with httpx.AsyncClient(timeout=None, trust_env=False) as client:  # noqa: S113 - how late it is, is looked at

        async def look(process: str, url: str) -> None:
            asked_s = loop.time()
            try:
                with contextlib.suppress(httpx.HTTPError):  # what has failed is told by the chats
                    await client.get(url)
            finally:  # when the run ends, too: an answer that is still out is the latest of all
                lateness.seen_s[process].append(loop.time() - asked_s)

        while True:
            due_s = loop.time() + LOOK_EVERY_S
            await asyncio.sleep(LOOK_EVERY_S)
            lateness.seen_s[_CLIENT].append(loop.time() - due_s)
            await asyncio.gather(*(look(process, url) for process, url in urls.items()))


def _p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20, method="inclusive")[18] if len(seconds) > 1 else sum(seconds)
