"""What comes of a hostile request: what its sender is answered, and what an engine behind is asked."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from tests.conversations.reading import Answers, Message, Requests
from tests.conversations.talking import next_read, received
from tests.rig.client import Client
from tests.rig.running import HasPort
from tests.rig.upstream import Peer

SETTLED_S = 0.3
"""How long it is waited for what may still come where nothing says what should."""


@dataclass(frozen=True)
class Outcome:
    """`answers`: statuses, in order; `asked`: how many requests the engine has read."""

    answers: tuple[int, ...]
    asked: int

    def __str__(self) -> str:
        statuses = ", ".join(map(str, self.answers)) or "none"
        return f"{statuses} → {self.asked}" if self.asked else statuses


class Witness:
    """An engine that keeps what it is asked, and answers all of it with 200."""

    def __init__(self) -> None:
        self.asked: list[Message] = []
        self.unreadable: list[str] = []

    async def script(self, peer: Peer) -> None:
        """For `ScriptedUpstream`."""
        reading = Requests()
        async for data in received(peer.reader):
            before = len(reading.messages)
            reading.feed(data)
            for message in reading.messages[before:]:
                self.asked.append(message)
                peer.send(b"HTTP/1.1 200 OK\r\nx-engine: 1\r\ncontent-length: 0\r\n\r\n")
            if reading.error is not None:
                self.unreadable.append(str(reading.error))
                break
        peer.close()


async def judge(server: HasPort, witness: Witness, data: bytes, awaited: int | None = None) -> tuple[Outcome, Answers]:
    """Send it on a connection of its own. `awaited`: answers to wait for; else all that come before it gets quiet."""
    witness.asked.clear()
    client = await Client.open(server.port)
    client.send(data)
    answers = Answers()
    with contextlib.suppress(ConnectionError, TimeoutError):
        while awaited is None or len(answers.messages) < awaited:
            part = await next_read(client.reader, SETTLED_S) if awaited is None else await next_read(client.reader)
            answers.feed(part)
            if not part:
                break
    await _end(client, answers)
    return Outcome(tuple(message.status for message in answers.messages), len(witness.asked)), answers


async def _end(client: Client, answers: Answers) -> None:
    """Say that no more comes, and read what is left."""
    with contextlib.suppress(ConnectionError, OSError, RuntimeError):
        client.writer.write_eof()
        while part := await next_read(client.reader):
            answers.feed(part)
    client.leave()
    await asyncio.sleep(0)
