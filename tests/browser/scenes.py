"""A live router with simulated replicas of two models, and chats through it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import httpx

from router.sim.replica import SimReplica
from tests.rig.client import request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk

MODEL = "harbour"
ODD_MODEL = "<img src=x onerror=\"window.violations.push('markup')\">"
"""Whoever makes markup of a model's name is found out."""


@dataclass
class Scene:
    stage: Stage
    router: Router
    admin: httpx.AsyncClient
    replicas: list[SimReplica]
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(100))

    @property
    def url(self) -> str:
        return str(self.admin.base_url)

    async def get(self, path: str) -> Any:
        answer = await self.admin.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def say(self, talk: ChatTalk, model: str = MODEL, **fields: Any) -> None:
        """Take one turn of a conversation."""
        client = await self.stage.client(self.router)
        answer = await client.ask(request(talk.path, {"model": model, "max_tokens": 8} | talk.ask() | fields))
        assert answer.status == 200, answer.body
        talk.take(answer)
        client.leave()

    async def chat(self, turns: int = 3, model: str = MODEL, stream: bool = True) -> ChatTalk:
        """A conversation of some turns."""
        talk = ChatTalk(next(self.numbers), stream=stream)
        for _ in range(turns):
            await self.say(talk, model)
        return talk

    async def chat_with_a_miss(self) -> ChatTalk:
        """A conversation whose client writes another system prompt before the last turn."""
        talk = await self.chat(2)
        talk.history[0] = {"role": "system", "content": "Now be brief. " * 40}
        await self.say(talk)
        return talk

    async def quiet(self) -> dict[str, Any]:
        """Wait until nothing runs, and return the overview: from here on its counts stay."""
        await self.router.idle()
        overview: dict[str, Any] = await self.get("/api/overview")
        return overview


async def scene(stage: Stage, **settings: Any) -> Scene:
    """A fleet that nobody has asked anything."""
    replicas = [*await stage.replicas(2, models=(MODEL,)), await stage.replica(models=(ODD_MODEL,))]
    router = await stage.router(*replicas, watched=True, **settings)
    await router.until(
        lambda: all(router.books(each).models and router.books(each).report.kv_tokens for each in replicas)
    )
    return Scene(stage, router, await router.admin(), replicas)


async def busy_scene(stage: Stage, **settings: Any) -> Scene:
    """A fleet with some conversations behind it, one of which has missed."""
    made = await scene(stage, **settings)
    for _ in range(3):
        await made.chat()
    await made.chat(2, ODD_MODEL, stream=False)
    await made.chat_with_a_miss()
    return made
