"""Clients that do nothing wrong beside those that do: each question asks for an answer that has its own mark."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.rig.client import Answer, Client, chat
from tests.rig.running import Router


@dataclass
class Innocents:
    """What came of their questions."""

    served: int = 0
    hurt: list[str] = field(default_factory=list)
    """Answers that were not as they should be: refused, cut, without their mark, or with another's."""

    async def ask(self, router: Router, name: int, over: asyncio.Event) -> None:
        """Ask again and again on one connection, streamed and not, until it is over; at least once."""
        client = await Client.open(router.port)
        number = 0
        while not over.is_set() or not number:
            number += 1
            await self._once(client, f"mark-{name}-{number}", stream=number % 2 == 0)
        client.leave()

    async def _once(self, client: Client, mark: str, *, stream: bool) -> None:
        try:
            answer = await client.ask(question(mark, stream=stream))
            right = answer.status == 200 and answer.header("connection") is None and said(answer) == wanted(mark)
            if right and answer.header("x-request-id") == mark:
                self.served += 1
                return
            self.hurt.append(f"{mark}: {answer.raw_head!r} {answer.body!r}")
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError, AssertionError) as error:
            self.hurt.append(f"{mark}: {error!r}")
            raise


def question(mark: str, *, stream: bool) -> bytes:
    """A chat to which there is one answer only."""
    schema = {"type": "object", "properties": {"mark": {"const": mark}}}
    form: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "mark", "schema": schema}}
    headers = [("x-request-id", mark)]
    return chat(f"say {mark}", headers=headers, stream=stream, max_tokens=200, response_format=form)


def wanted(mark: str) -> str:
    return f'{{"mark":"{mark}"}}'


def said(answer: Answer) -> str:
    """The text of an answer."""
    if answer.header("content-type") == "application/json":
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text
    events = answer.events()
    assert events[-1] == "[DONE]"
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-1])


@contextlib.asynccontextmanager
async def innocents(router: Router, count: int = 4) -> AsyncIterator[Innocents]:
    """So many, until the end of the block."""
    beside, over = Innocents(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for name in range(count):
            group.create_task(beside.ask(router, name, over))
        yield beside
        over.set()
