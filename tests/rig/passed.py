"""Honest requests with random bodies, headers, framings and cuts, many at once: what arrives is what was sent.

`python -m tests.rig.passed --count 100000` sends so many through a router to an engine that checks each request, and
checks each answer. Every message carries the number that it is made from, so that one which went astray is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from dataclasses import dataclass, field
from random import Random

from tests.rig.client import Answer, Client
from tests.rig.counted import run
from tests.rig.fuzzed import Lines, Sent, answer_of, request_of
from tests.rig.leaks import Held, leaked
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, Received

_OWN = {
    "connection", "content-length", "transfer-encoding", "host", "expect", "x-request-id", "x-forwarded-for",
    "x-forwarded-proto",
}  # fmt: skip
_UPSTREAM_KEEPALIVE_S = 0.5
"""So that connections to engines, which are kept for the next request, are soon no more when there is none."""


@dataclass
class Tally:
    """What came of all."""

    passed: int = 0
    """Answers that were read to their end."""
    left: int = 0
    """Requests whose client left before."""
    changed: list[str] = field(default_factory=list)
    """Messages that arrived as they were not sent."""
    crossed: list[str] = field(default_factory=list)
    """Messages that arrived in another one's place."""
    leaked: int = 0
    bytes: int = 0
    """Of all bodies, both ways."""

    def line(self) -> str:
        return (
            f"{self.passed} passed, {self.left} left early, {self.bytes / 1e6:.0f} MB of bodies: "
            f"{len(self.changed)} changed, {len(self.crossed)} crossed, {self.leaked} leaked"
        )


def _arrived(headers: Lines) -> Lines:
    lower = [(name.lower(), value) for name, value in headers]
    return [pair for pair in lower if pair[0] not in _OWN and not pair[0].startswith("x-warmroute-")]


def _due(sent: Sent) -> Lines:
    return [(name.lower(), value) for name, value in sent.lines]


class Passing:
    """Both ends of all conversations through one router."""

    def __init__(self, stage: Stage, seed: int, count: int) -> None:
        self.stage, self.seed, self.count, self.tally = stage, seed, count, Tally()
        self._numbers = itertools.count()

    def _next(self) -> int | None:
        """The next number; None when enough have passed."""
        return None if self.tally.passed >= self.count else next(self._numbers)

    # The engine's end

    async def script(self, peer: Peer) -> None:
        """For `ScriptedUpstream`."""
        try:
            await self._answer_all(peer)
        finally:
            peer.close()

    async def _answer_all(self, peer: Peer) -> None:
        while True:
            received = await peer.request()
            peer.requests.clear()  # nobody looks at them, and they are many
            number = int(received.header("x-mark") or -1)
            self._check_request(number, received)
            answer = answer_of(self.seed, number, received.method)
            await self._send(peer, answer.pieces)
            if answer.closes:
                return

    def _check_request(self, number: int, received: Received) -> None:
        sent = request_of(self.seed, number)
        arrived = f"{received.method} {received.target}", _arrived(received.headers), received.body
        self.tally.bytes += len(sent.body)
        if arrived != (sent.first, _due(sent), sent.body):
            self.tally.changed.append(f"request {number}")

    async def _send(self, end: Peer | Client, pieces: list[bytes]) -> None:
        for number, piece in enumerate(pieces):
            if number:
                await Client.turn()
            if end.writer.is_closing():
                return
            end.send(piece)
        with contextlib.suppress(ConnectionError):
            await end.writer.drain()

    # The client's end

    async def client(self, router: Router) -> None:
        """Send what is next, on one connection after the other."""
        while (number := self._next()) is not None:
            chance, connection = Random(number), await Client.open(router.port)
            for _ in range(chance.randint(1, 50)):
                if number is None or not await self._once(connection, number, chance):
                    break
                number = self._next()
            connection.leave()

    async def _once(self, client: Client, number: int, chance: Random) -> bool:
        """Send one request, or some at once, and read what comes; return whether the connection goes on."""
        numbers = [number]
        while chance.random() < 0.1 and len(numbers) < 4 and not request_of(self.seed, numbers[-1]).closes:
            following = self._next()
            if following is None:
                break
            numbers.append(following)
        sent = [request_of(self.seed, number) for number in numbers]
        leaves = chance.random() < 0.02
        sending = asyncio.ensure_future(self._send_all(client, sent))
        try:
            if leaves:
                await self._leave(client, chance)
                self.tally.left += len(numbers)
                return False
            for each, request in zip(numbers, sent, strict=True):
                if not await self.read(client, each, request):
                    return False
        finally:
            await sending
        return not sent[-1].closes

    async def _send_all(self, client: Client, sent: list[Sent]) -> None:
        for request in sent:
            await self._send(client, request.pieces)

    async def _leave(self, client: Client, chance: Random) -> None:
        for _ in range(chance.randint(0, 3)):
            await client.turn()
        client.reset() if chance.random() < 0.5 else client.leave()

    async def read(self, client: Client, number: int, request: Sent) -> bool:
        """Read the answer to one request, and compare; return whether there was one."""
        method = request.first.partition(" ")[0]
        sent = answer_of(self.seed, number, method)
        try:
            answer = await client.answer(head_only=method == "HEAD")
            while answer.status == 100:
                answer = await client.answer(head_only=method == "HEAD")
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.tally.changed.append(f"answer {number}: {error!r}")
            return False
        self.tally.passed += 1
        self.tally.bytes += len(sent.body)
        self._check_answer(number, sent, answer)
        return True

    def _check_answer(self, number: int, sent: Sent, answer: Answer) -> None:
        if answer.all("x-mark") != [str(number)]:
            self.tally.crossed.append(f"answer {number}: {answer.raw_head!r} {answer.body[:200]!r}")
        elif (str(answer.status), _arrived(answer.headers), answer.body) != (sent.first, _due(sent), sent.body):
            self.tally.changed.append(f"answer {number}: {answer.raw_head!r}")
        elif answer.trailers != sent.trailers and "transfer-encoding" in dict(answer.headers):
            self.tally.changed.append(f"trailers {number}")


async def pass_all(stage: Stage, seed: int, count: int, at_once: int = 24, engines: int = 3) -> Tally:
    """Send until so many answers have passed, some at once."""
    passing = Passing(stage, seed, count)
    upstreams = [await stage.upstream(passing.script) for _ in range(engines)]
    router = await stage.router(*upstreams, upstream_keepalive_s=_UPSTREAM_KEEPALIVE_S)
    before = Held.by(router)
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(passing.client(router))
    passing.tally.leaked = await leaked(router, before)
    for upstream in upstreams:
        if upstream.failure is not None:
            raise upstream.failure
    return passing.tally


async def _main(seed: int, count: int) -> int:
    async with contextlib.AsyncExitStack() as stack:
        began_s = time.monotonic()
        tally = await pass_all(Stage(stack), seed, count)
        print(f"seed {seed}, {time.monotonic() - began_s:.1f} s: {tally.line()}")
    for what in (*tally.changed[:5], *tally.crossed[:5]):
        print(what, file=sys.stderr)
    return 1 if tally.changed or tally.crossed or tally.leaked else 0


if __name__ == "__main__":
    sys.exit(run(_main, "Send honest requests of every kind, and compare.", "how many at least", 100_000))
