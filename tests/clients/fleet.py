"""A fleet behind a router, and a client of each library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar

import anthropic
import openai

from router.sim.replica import SimReplica
from tests.rig.running import Router
from tests.rig.stage import Stage

Made = TypeVar("Made")

LONG = "The harbour was quiet, and the lanterns swung in the wind. " * 40
"""About 500 tokens: several blocks of any engine."""


class Fleet:
    """Replicas, a router, and a client of each kind."""

    def __init__(self, router: Router, replicas: list[SimReplica], model: str, key: str = "unused") -> None:
        self.router = router
        self.replicas = replicas
        """Simulated ones; none in front of real servers."""
        self.model = model
        self.openai = openai.AsyncOpenAI(
            base_url=f"{router.url}/v1",
            api_key=key,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        )
        self.anthropic = anthropic.AsyncAnthropic(
            base_url=router.url,
            api_key=key,
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.openai.close()
        await self.anthropic.close()

    @property
    def url(self) -> str:
        return f"{self.router.url}/v1"

    async def sync(self, use: Callable[[openai.OpenAI], Made]) -> Made:
        """Use the synchronous client, in a thread of its own."""

        def used() -> Made:
            http = openai.DefaultHttpxClient(trust_env=False)
            with openai.OpenAI(base_url=self.url, api_key="unused", max_retries=0, http_client=http) as client:
                return use(client)

        return await asyncio.to_thread(used)

    async def idle(self) -> None:
        """Wait until no engine runs anything, as their metrics say, and the router counts nothing."""
        await self.router.until(lambda: all(_rests(replica.report) for replica in self.router.house.fleet))
        await self.router.idle()


def _rests(report: Any) -> bool:
    return report is not None and report.running == 0 and report.waiting == 0


async def at_rest(stage: Stage, count: int = 3, *, time_scale: float = 1_000.0, **settings: Any) -> Fleet:
    """Start simulated replicas and a router that knows what they serve."""
    replicas = await stage.replicas(count, time_scale=time_scale)
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1, **settings)
    await router.until(lambda: all(router.books(replica).models for replica in replicas))
    return Fleet(router, replicas, "sim-model", key=str(settings.get("api_keys", "unused")))


def warm(headers: Mapping[str, str], first: Mapping[str, str]) -> None:
    """Assert that a turn was sent where the first one went, for what is cached there."""
    assert headers["x-warmroute-decision"] == "warm"
    assert headers["x-warmroute-replica"] == first["x-warmroute-replica"]
    assert int(headers["x-warmroute-matched-tokens"]) > 0
