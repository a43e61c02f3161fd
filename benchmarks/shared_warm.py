"""shared.py --warm: every turn through the other router, at once, and then through routers that were just started."""

import argparse
import asyncio
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.chats import read_events, request_of
from benchmarks.live import fleet
from benchmarks.load import Connection
from benchmarks.redis_server import redis_server
from benchmarks.routers import Router, places, routers
from router.sim.workload import ChatSession, Passage, PlannedTurn

ROUTERS = 2
# A turn's prefill takes a tenth of a second, and moving away costs a history that is longer than what is under way
# before it: no home is ever full.
SYSTEM_TOKENS, USER_TOKENS, ANSWER_TOKENS = 300, 300, 40
TURNS = 4  # three, and the one after the restart
KILLED_AFTER_S = 0.5  # what is behind is to be written within a fraction of that
HEADERS = re.compile(rb"^x-warmroute-(replica|decision): *(\S+)", re.MULTILINE | re.IGNORECASE)

Figures = dict[str, float]


class HeadedConnection(Connection):
    """Keeps the headers that tell who served an answer, and why."""

    said: Mapping[bytes, bytes] = {}

    def read_head(self) -> bool:
        buffer = self.buffer
        whole = super().read_head()
        if whole:
            self.said = {name.lower(): value for name, value in HEADERS.findall(buffer.partition(b"\r\n\r\n")[0])}
        return whole


@dataclass(slots=True)
class Talk:
    """A session between two turns."""

    session: ChatSession
    text: str | None = None
    home: bytes = b""


@dataclass(slots=True)
class Count:
    """Follow-ups: how many, how many of them where the last turn was, and the decisions' reasons."""

    turns: int = 0
    at_home: int = 0
    warm: int = 0
    errors: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def figures(self) -> Figures:
        turns = max(1, self.turns)
        own = {"turns": self.turns, "errors": self.errors, "home_ratio": self.at_home / turns}
        reasons = {f"reason_{reason}": count for reason, count in self.reasons.items()}
        return {**own, "warm_ratio": self.warm / turns, **reasons}


def talks(count: int, seed: int) -> list[Talk]:
    """Sessions without pauses that share nothing."""
    chance = Random(seed)

    def said(tokens: int) -> Passage:
        return Passage(chance.getrandbits(63), tokens)

    def session(number: int) -> ChatSession:
        turns = tuple(PlannedTurn(0.0, (said(USER_TOKENS),), ANSWER_TOKENS) for _ in range(TURNS))
        return ChatSession(f"chat-{number}", 0.0, said(SYSTEM_TOKENS), turns)

    return [Talk(session(number)) for number in range(count)]


class Client:
    """One connection to every router; talks through them in turn, one request at a time."""

    def __init__(self, connections: Sequence[HeadedConnection]) -> None:
        self.connections = connections

    async def take_turn(self, talk: Talk, router: int, count: Count) -> None:
        turn = talk.session.next_turn(talk.text)
        if turn is None:
            raise RuntimeError("no turn left")
        connection, parts = self.connections[router % len(self.connections)], list[bytes]()
        if not connection.open:
            raise RuntimeError("a router closed a connection")
        connection.said = {}
        answer = await connection.start(request_of(turn, False), parts.append)
        text = read_events(b"".join(parts)).text
        replica, reason = (connection.said.get(name, b"") for name in (b"replica", b"decision"))
        count.errors += not answer.ok(True)
        if turn.number > 1:
            count.turns += 1
            count.at_home += replica == talk.home != b""
            count.warm += replica == talk.home != b"" and reason == b"warm"
            count.reasons[reason.decode()] += 1
        talk.text, talk.home = text, replica


async def converse(started: Sequence[Router], all_talks: Sequence[Talk], turns: int, concurrency: int) -> Count:
    """Take `turns` turns of each session, the first through its router, each next one through the next router."""
    waiting, count, loop = list(enumerate(all_talks)), Count(), asyncio.get_running_loop()

    async def client() -> None:
        made = [await loop.create_connection(HeadedConnection, "127.0.0.1", router.port) for router in started]
        one = Client([connection for _, connection in made])
        while waiting:
            number, talk = waiting.pop()
            for turn in range(turns):
                await one.take_turn(talk, number + turn, count)
        for connection in one.connections:
            connection.transport.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))
    return count


async def measure_warm(number: int, options: argparse.Namespace) -> dict[str, Figures]:
    all_talks = talks(options.sessions, options.seed + number)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as home,
        fleet(options, Path(home) / "late.json") as (_, ports),
        redis_server() as redis,
    ):
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        flags, at = ["--redis", redis.url, *options.redis_flags], places(ROUTERS)
        print("  the other router at once", file=sys.stderr, flush=True)
        with routers(at, urls, [flags] * ROUTERS) as started:
            other = await converse(started, all_talks, TURNS - 1, options.concurrency)
            await asyncio.sleep(KILLED_AFTER_S)
            for router in started:
                os.killpg(router.process.pid, signal.SIGKILL)
        print("  after a restart of both", file=sys.stderr, flush=True)
        with routers(at, urls, [flags] * ROUTERS) as started:
            again = await converse(started, all_talks, 1, options.concurrency)
    return {"other router, at once": other.figures(), "new routers, after a kill": again.figures()}
