"""One client, router and engine for many conversations, of which none may be felt by the next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import uvloop

from tests.conversations.reading import Answers, Reading, requests_in
from tests.conversations.talking import next_read, send
from tests.rig.client import DEADLINE_S, Client
from tests.rig.stage import Stage
from tests.rig.upstream import Script

T = TypeVar("T")

QUIET_S = 0.05
"""How long it is waited for an answer to what h11 can't read. Nothing depends on it but that one more is seen."""


@dataclass
class Told:
    """What came back of one conversation."""

    answers: Answers
    ended: bool
    """Whether the router ended the connection."""
    reset: bool = False
    """Whether what was sent behind the end of all that can be read may have cost an answer before it."""


class Lane:
    """Its own loop, so that hypothesis may call it again and again."""

    def __init__(self, script: Script) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._stack = contextlib.AsyncExitStack()
        self._script = script
        self._raised: list[dict[str, Any]] = []
        self.stage = Stage(self._stack)

    def __enter__(self) -> Self:
        self._runner.get_loop().set_exception_handler(lambda _, context: self._raised.append(context))
        self.run(self._open())
        return self

    async def _open(self) -> None:
        self.upstream = await self.stage.upstream(self._script)
        self.router = await self.stage.router(self.upstream)
        self.authority = f"127.0.0.1:{self.upstream.port}".encode()

    def __exit__(self, *_: object) -> None:
        self.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self._stack.aclose()
        await Client.turn()  # until what was closed is

    def run(self, conversation: Coroutine[Any, Any, T]) -> T:
        """Run one conversation to its end. Nothing may be counted in flight then, and no callback may have raised."""
        result = self._runner.run(conversation)
        assert not self._raised, self._raised
        return result

    async def tell(self, pieces: list[bytes], sent: Reading) -> Told:
        """Send bytes in which h11 reads `sent`; return all that came back."""
        async with self.client() as client:
            return await self._tell(client, pieces, sent)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A connection, after whose end nothing may be counted in flight."""
        client = await Client.open(self.router.port)
        try:
            yield client
        finally:
            client.leave()
            await self.router.idle()

    async def _tell(self, client: Client, pieces: list[bytes], sent: Reading) -> Told:
        answers = Answers(*(message.method for message in sent.messages))
        try:
            await send(client, pieces)
            while not (self._answered(answers, sent) and not sent.begun):
                if self._answered(answers, sent):
                    client.writer.write_eof()  # half a request is left
                all_read = len(answers.messages) >= len(sent.messages)
                data = await next_read(client.reader, QUIET_S if sent.error and all_read else DEADLINE_S)
                answers.feed(data)
                if not data:
                    return Told(answers, ended=True)
        except ConnectionError:
            return Told(answers, ended=True, reset=True)
        except TimeoutError:
            assert len(answers.messages) >= len(sent.messages), "no answer"
        return Told(answers, ended=False)

    def _answered(self, answers: Answers, sent: Reading) -> bool:
        return len(answers.messages) >= len(sent.messages) and not sent.error and not answers.over


def read(pieces: list[bytes]) -> Reading:
    """What h11 reads in what a client sends."""
    return requests_in(b"".join(pieces))
