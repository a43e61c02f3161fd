"""Two routers on one Redis, and chats that show what each of them knows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from router.adapters.redis_store.state import State
from router.adapters.redis_store.store import RedisStore
from router.sim.replica import SimReplica
from tests.rig.client import DEADLINE_S, Answer, Client, request
from tests.rig.running import LOOK_S, Router
from tests.rig.stage import Stage
from tests.rig.talks import BLOCK_TOKENS, ChatTalk

PATIENT_MS = 250.0
"""Deadline of the routers' questions: a busy machine does not make Redis slow."""


@dataclass
class Chat:
    """A chat, and what its last answer said of it."""

    talk: ChatTalk
    tokens: int = 0
    """Of the prompt of its last turn."""
    replica: str | None = None


class Sharing:
    """Two routers over the same replicas. Every answer must be a 200."""

    def __init__(
        self, stage: Stage, routers: list[Router], clients: list[Client], caplog: pytest.LogCaptureFixture
    ) -> None:
        self.a, self.b = self.routers = routers
        self._stage = stage
        self._urls = [endpoint.url for endpoint in routers[0].house.endpoints.values()]
        self._clients = dict(zip(routers, clients, strict=True))
        self._caplog = caplog
        self._numbers: Iterator[int] = itertools.count(1)

    @classmethod
    async def open(
        cls, stage: Stage, caplog: pytest.LogCaptureFixture, *urls: str, replicas: int = 3, **settings: Any
    ) -> Sharing:
        """Start both, with one Redis URL for both or one each."""
        caplog.set_level("INFO", "warmroute.redis")
        simulated: list[SimReplica] = await stage.replicas(replicas)
        chosen = {"redis_deadline_ms": PATIENT_MS} | settings
        routers = [await stage.router(*simulated, redis=url, **chosen) for url in (urls[0], urls[-1])]
        return cls(stage, routers, [await stage.client(router) for router in routers], caplog)

    # Chats

    async def new(self, router: Router) -> Chat:
        """Begin a chat through a router."""
        chat = Chat(ChatTalk(next(self._numbers), stream=False))
        await self.turn(chat, router)
        return chat

    async def turn(self, chat: Chat, router: Router) -> bool:
        """Send a chat's next turn; return whether the router knew of the last one, whoever had sent that."""
        client = self._clients[router]
        answer: Answer = await client.ask(request(chat.talk.path, {"model": "sim-model"} | chat.talk.ask()))
        assert answer.status == 200, answer.body
        before = chat.tokens
        chat.tokens, cached = chat.talk.take(answer)
        known = answer.matched_tokens > before - BLOCK_TOKENS if before else False
        if known:
            assert answer.replica == chat.replica, "it knew and went elsewhere"
            assert cached > before - BLOCK_TOKENS, "it knew what the replica did not have"
        chat.replica = answer.replica
        return known

    async def stays_warm(self, chat: Chat, router: Router) -> None:
        """Send a turn through the router that knows the chat."""
        assert await self.turn(chat, router), "the router has forgotten a chat of its own"

    async def goes_on(self, known: dict[Router, Chat], turns: int = 2) -> None:
        """While Redis is not well: each router serves the chat that it knows warm, and new ones."""
        for _ in range(turns):
            for router, chat in known.items():
                await self.stays_warm(chat, router)
                await self.stays_warm(await self.new(router), router)

    async def known(self) -> dict[Router, Chat]:
        """Begin a chat with each router."""
        return {router: await self.new(router) for router in self.routers}

    async def known_here_and_there(self) -> dict[Router, Chat]:
        """Wait until the routers share, and begin a chat with each."""
        await self.shares()
        return await self.known()

    async def shares(self) -> None:
        """Wait until what either router learns is known to the other one in the next turn."""
        for one, other in ((self.a, self.b), (self.b, self.a)):
            await eventually(lambda one=one, other=other: self._shares(one, other), "nothing is shared")  # type: ignore[misc]

    async def _shares(self, one: Router, other: Router) -> bool:
        return await self.turn(await self.new(one), other)

    async def third(self, url: str) -> Router:
        """Start another router, which knows what Redis knows and heard of nothing."""
        router = await self._stage.router(*self._urls, redis=url, redis_deadline_ms=PATIENT_MS)
        self._clients[router] = await self._stage.client(router)
        await router.until(lambda: store_of(router).state is State.UP)
        return router

    # Redis as the routers see it

    async def become(self, *states: State) -> None:
        """Wait until both routers see Redis in one of these states."""
        for router in self.routers:
            store = store_of(router)
            await router.until(lambda store=store: store.state in states, f"redis is {store.state}")  # type: ignore[misc]

    async def flushed_out(self) -> None:
        """Wait until both have told and written everything."""
        for router in self.routers:
            telling = store_of(router)
            await router.until(lambda store=telling: not len(store.outbox))  # type: ignore[misc]

    def logged(self) -> list[list[State]]:
        """The states that each router has logged, one a line. Both have the first URL if they have the same."""
        texts = [str(store_of(router).options.address) for router in self.routers]
        lines: dict[str, list[State]] = {text: [] for text in texts}
        for record in self._caplog.records:
            if record.name == "warmroute.redis":
                assert isinstance(record.args, tuple)
                address, state, _ = record.args
                lines[str(address)].append(State(str(state)))
        return [lines[text] for text in texts]

    def check_log(self, *expected: list[State]) -> None:
        """Check that each router has logged one of these sequences of changes, and nothing twice."""
        for states in self.logged():
            assert states in expected


def store_of(router: Router) -> RedisStore:
    assert router.house.store is not None
    return router.house.store


def both_names(url: str) -> tuple[str, str]:
    """The same URL in two forms, so that the log tells which router writes a line."""
    assert "127.0.0.1" in url
    return url, url.replace("127.0.0.1", "localhost")


async def eventually(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Ask until it holds."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if await holds():
                    return
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"{what} after {DEADLINE_S:.0f} s") from None
