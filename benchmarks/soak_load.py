"""The clients of soak.py: chats and coding agents that go on whatever happens, and some that do not behave."""

import asyncio
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from benchmarks.chats import Session, read_events, request_of
from benchmarks.load import chat_body, post
from benchmarks.paced import Paced, connected
from router.sim.workload import ChatSession, ChatWorkload, Passage, PlannedTurn

RETRIES = 2  # of a refusal, as OpenAI's clients do

AGENT_KINDS = 3
"""Programs, each with a system prompt and tools of its own."""
AGENT_SYSTEM_TOKENS = (6_000, 12_000)
AGENT_TURNS = (8, 40)
AGENT_THINK_MEDIAN_S, AGENT_RESULT_TOKENS, AGENT_ANSWER_TOKENS = 5.0, (50, 2_500), (20, 300)


@dataclass(frozen=True, slots=True)
class AgentWorkload:
    """Coding agents: long prompts that many share, many short turns, little thought. The same seed gives the same."""

    sessions_per_s: float
    duration_s: float
    seed: int

    def sessions(self) -> Iterator[ChatSession]:
        chance = Random(self.seed)
        systems = [Passage(chance.getrandbits(63), chance.randint(*AGENT_SYSTEM_TOKENS)) for _ in range(AGENT_KINDS)]
        starts_s, number = 0.0, 0
        while (starts_s := starts_s + chance.expovariate(self.sessions_per_s)) < self.duration_s:
            name = f"agent-{self.seed}-{number}"
            yield ChatSession(name, starts_s, chance.choice(systems), tuple(_agent_turns(chance)))
            number += 1


def _agent_turns(chance: Random) -> Iterator[PlannedTurn]:
    for number in range(chance.randint(*AGENT_TURNS)):
        think_s = AGENT_THINK_MEDIAN_S * chance.lognormvariate(0, 1) if number else 0.0
        result = Passage(chance.getrandbits(63), chance.randint(*AGENT_RESULT_TOKENS))
        yield PlannedTurn(think_s, (result,), chance.randint(*AGENT_ANSWER_TOKENS))


def sessions_of(chats_per_s: float, agents_per_s: float, duration_s: float, seed: int) -> list[Session]:
    """All that start within `duration_s`, simulated; those of a shorter time are the first ones of a longer."""
    chats, agents = ChatWorkload(chats_per_s, duration_s, seed), AgentWorkload(agents_per_s, duration_s, seed)
    return [*chats.sessions(), *agents.sessions()]


@dataclass(slots=True)
class Asked:
    """One request as its client saw it. Times: seconds on the loop's clock; `at_s`: simulated, since the start."""

    at_s: float
    began_s: float
    ended_s: float = 0.0
    status: int = 0
    problem: str = "no answer"
    replica_id: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0

    @property
    def failed(self) -> bool:
        return bool(self.problem) and self.status != 429


class Load(Paced):
    """All sessions against one router. They take no new turn after `duration_s`, simulated."""

    def __init__(self, port: int, sessions: Iterable[Session], duration_s: float, time_scale: float) -> None:
        super().__init__(port, time_scale)
        self.sessions, self.duration_s = sessions, duration_s
        self.asked: list[Asked] = []

    def start(self) -> None:
        self.begin(self.converse(session) for session in self.sessions)

    async def converse(self, session: Session) -> None:
        await self.sleep_until(session.starts_s)
        text: str | None = None
        while (turn := session.next_turn(text)) is not None:
            due_s = self.now_s() + turn.think_s
            if due_s >= self.duration_s:
                return
            await self.sleep_until(due_s)
            text = await self.insist(request_of(turn, session_header=False))

    async def insist(self, request: bytes) -> str | None:
        """Ask; a refused request comes again when it was told to."""
        for _ in range(1 + RETRIES):
            asked = Asked(self.now_s(), self.loop.time())
            self.asked.append(asked)
            text, again_s = await self.ask(asked, request)
            asked.ended_s = self.loop.time()
            if asked.status != 429:
                return text
            await asyncio.sleep(again_s)
        return None

    async def ask(self, asked: Asked, request: bytes) -> tuple[str | None, float]:
        parts: list[bytes] = []
        try:
            answer, connection = await self.line.ask(request, parts.append)
        except OSError as error:
            asked.problem = str(error)
            return None, 0.0
        asked.status, asked.problem, asked.replica_id = answer.status, answer.problem, connection.replica_id
        if not answer.ok(True):
            asked.problem = asked.problem or ("not the whole answer" if answer.status == 200 else "refused")
            return None, connection.retry_after_s or 1.0
        content = read_events(b"".join(parts))
        asked.prompt_tokens, asked.cached_tokens = content.prompt_tokens, content.cached_tokens
        return content.text, 0.0


LONG = post(chat_body("tell me everything", True, max_tokens=2_000))
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/9.9\r\n\r\n",
    _POST + b"content-length: -1\r\n\r\n{}",
    _POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    _POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    _POST + b"content-length: 50000\r\n\r\n" + b"[" * 50_000,
    _POST + b"x-a: " + b"y" * 70_000 + b"\r\n\r\n",
    _POST + b"content-length: 100\r\n\r\n{",
    b"\x00" * 300,
)
GARBAGE_WAIT_S = 0.3
"""A connection from which nothing has come for so long has got all it will get: what was sent was half a request."""


async def leave_midway(port: int, chance: Random) -> None:
    """Begin a long answer and leave: before its head, or with it, by an orderly end or a reset."""
    loop, sock = asyncio.get_running_loop(), await connected(port)
    with suppress(OSError):
        await loop.sock_sendall(sock, LONG[: chance.choice((40, len(LONG), len(LONG)))])
        if chance.random() < 0.7:
            await asyncio.wait_for(loop.sock_recv(sock, 4_096), 5.0)
    if chance.random() < 0.5:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


async def read_slowly(port: int, seconds: float) -> None:
    """Take a long answer a few bytes at a time, and leave before its end."""
    loop, sock = asyncio.get_running_loop(), socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    until_s = loop.time() + seconds
    with suppress(OSError):
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, LONG)
        while loop.time() < until_s:
            await asyncio.wait_for(loop.sock_recv(sock, 64), seconds)
            await asyncio.sleep(0.05)
    sock.close()


async def send_garbage(port: int, chance: Random) -> bytes:
    """What came back."""
    loop, sock, received = asyncio.get_running_loop(), await connected(port), b""
    with suppress(OSError):
        await loop.sock_sendall(sock, chance.choice(GARBAGE) + chance.randbytes(chance.randint(0, 40)))
        while part := await asyncio.wait_for(loop.sock_recv(sock, 65_536), GARBAGE_WAIT_S):
            received += part
    sock.close()
    return received


def hit_ratio(asked: Sequence[Asked], start_s: float, end_s: float) -> float:
    """Cached over all prompt tokens of what was asked between two simulated times."""
    counted = [one for one in asked if start_s <= one.at_s < end_s]
    return sum(one.cached_tokens for one in counted) / max(1, sum(one.prompt_tokens for one in counted))
