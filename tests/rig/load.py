"""Chats that go on all the time while something happens to the fleet; every answer of theirs must be whole."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

from tests.rig.client import request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk

TURNS = 6
"""Of one chat; then the next one begins."""


class Load:
    """What has been asked, and by which replicas it was answered."""

    def __init__(self) -> None:
        self.answered: list[str | None] = []
        self.failed: list[str] = []
        self._over = False
        self._numbers = itertools.count(10_000)

    async def _chat_on(self, stage: Stage, router: Router) -> None:
        client = await stage.client(router)
        talk: ChatTalk | None = None
        while not self._over:
            if talk is None or talk.turns == TURNS:
                number = next(self._numbers)
                talk = ChatTalk(number, stream=bool(number % 2))
            answer = await client.ask(request(talk.path, {"model": "sim-model", "max_tokens": 8} | talk.ask()))
            if answer.status != 200 or (talk.stream and answer.events()[-1] != "[DONE]"):
                self.failed.append(f"{answer.status} {answer.body[-300:]!r}")
                return
            talk.take(answer)
            self.answered.append(answer.replica)

    def end(self) -> None:
        """Let every chat end with the turn that it is in."""
        self._over = True


@contextlib.asynccontextmanager
async def load(stage: Stage, router: Router, clients: int = 6) -> AsyncIterator[Load]:
    """Chats through a router while the block runs; at its end none of their requests may have failed."""
    load = Load()
    chats = [asyncio.ensure_future(load._chat_on(stage, router)) for _ in range(clients)]
    try:
        await router.until(lambda: len(load.answered) >= clients, "the chats do not begin")
        yield load
        load.end()
        await asyncio.gather(*chats)
    finally:
        for chat in chats:
            chat.cancel()
        await asyncio.gather(*chats, return_exceptions=True)
    assert load.failed == []
    assert router.records.failed == [], "not even an attempt"
