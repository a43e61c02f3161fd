"""A load client on bare asyncio protocols: cheap enough that two cores hold client, router and backends."""

import asyncio
import json
import random
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

DONE = b"data: [DONE]"
TAIL_BYTES = 32  # holds DONE and its line ends, however the payload was cut


@dataclass(slots=True)
class Answer:
    """One exchange as the client saw it. Times are seconds since the request was written."""

    status: int = 0
    first_byte_s: float = 0.0  # of the response's body: an answer's head comes before the prefill
    total_s: float = 0.0
    events: int = 0  # blank lines, that is SSE events
    payload_bytes: int = 0
    tail: bytes = b""
    problem: str = ""

    def ok(self, streamed: bool) -> bool:
        return self.status == 200 and not self.problem and (not streamed or DONE in self.tail)


def chat_body(text: str, streamed: bool, max_tokens: int | None = None) -> bytes:
    messages = [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": text}]
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return json.dumps({"model": "m", "stream": streamed, **limit, "messages": messages}).encode()


def post(body: bytes, path: str = "/v1/chat/completions", headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}authorization: Bearer k\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class Connection(asyncio.Protocol):
    """A kept-alive client connection; one exchange at a time."""

    def __init__(self, quick_ack: socket.socket | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.quick_ack = quick_ack
        self.open = False
        self.lost = asyncio.Event()
        self.answered: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.open = cast(asyncio.Transport, transport), True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self.lost.set()
        if self.answered:
            delimited_by_close = self.in_body and self.rest is None and not self.chunked
            self.finish("" if delimited_by_close and not exc else f"connection lost: {exc or 'closed'}")

    async def close(self) -> None:
        self.transport.close()
        await self.lost.wait()

    def start(self, request: bytes, on_payload: Callable[[bytes], None] | None = None) -> "asyncio.Future[Answer]":
        self.answer, self.on_payload = Answer(), on_payload
        self.answered = self.loop.create_future()
        self.buffer, self.in_body, self.chunked = b"", False, False
        self.rest: int | None = 0  # bytes left of the body or chunk; None: until the connection closes
        self.started = time.perf_counter()
        self.transport.write(request)
        return self.answered

    def finish(self, problem: str = "") -> None:
        answered, self.answered = self.answered, None
        self.answer.total_s, self.answer.problem = time.perf_counter() - self.started, problem
        if answered and not answered.done():
            answered.set_result(self.answer)

    def data_received(self, data: bytes) -> None:
        if self.answered is None:
            return
        self.buffer = self.buffer + data if self.buffer else data
        if not self.in_body:
            if not self.read_head():
                return
            if self.quick_ack:
                self.quick_ack.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if self.chunked:
            self.read_chunks()
        else:
            self.read_sized()

    def read_head(self) -> bool:
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return False
        fields = head.lower()
        self.answer.status, self.in_body, self.buffer = int(fields[9:12]), True, rest
        self.chunked = b"transfer-encoding: chunked" in fields
        at = fields.find(b"\r\ncontent-length:")
        self.rest = int(fields[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else None
        return True

    def read_sized(self) -> None:
        payload, self.buffer = self.buffer, b""
        if payload:
            self.take(payload)
        if self.rest is not None:
            self.rest -= len(payload)
            if self.rest <= 0:
                self.finish()

    def read_chunks(self) -> None:
        buffer, at = self.buffer, 0
        while (line := buffer.find(b"\r\n", at)) >= 0:
            size = int(buffer[at:line].split(b";", 1)[0], 16)
            if len(buffer) < line + 4 + size:
                break
            if size == 0:
                self.buffer = b""
                self.finish()
                return
            self.take(buffer[line + 2 : line + 2 + size])
            at = line + 4 + size
        self.buffer = buffer[at:]

    def take(self, payload: bytes) -> None:
        answer = self.answer
        if not answer.payload_bytes:
            answer.first_byte_s = time.perf_counter() - self.started
        answer.payload_bytes += len(payload)
        answer.events += payload.count(b"\n\n")
        answer.tail = (answer.tail + payload)[-TAIL_BYTES:]
        if self.on_payload:
            self.on_payload(payload)


async def connect(port: int, quick_ack: bool = False) -> Connection:
    """Connect; with `quick_ack` the client acknowledges an answer's head at once.

    Linux holds an acknowledgement back for 40 ms, and a router that leaves Nagle's algorithm on waits for it with the
    first event.
    """
    loop, sock = asyncio.get_running_loop(), socket.socket()
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _, connection = await loop.create_connection(lambda: Connection(sock if quick_ack else None), sock=sock)
    return connection


class Pool:
    """Kept-alive connections to one port, as many as are needed at once."""

    def __init__(self, port: int, quick_ack: bool = False) -> None:
        self.port, self.quick_ack = port, quick_ack
        self.idle: deque[Connection] = deque()

    async def exchange(self, request: bytes, on_payload: Callable[[bytes], None] | None = None) -> Answer:
        while self.idle:
            connection = self.idle.pop()
            if connection.open:
                break
        else:
            connection = await connect(self.port, self.quick_ack)
        answer = await connection.start(request, on_payload)
        if connection.open:
            self.idle.append(connection)
        return answer

    def close(self) -> None:
        for connection in self.idle:
            connection.transport.close()


@dataclass(slots=True)
class Tally:
    """Outcome of many requests of one kind."""

    streamed: bool
    elapsed_s: float = 0.0
    answers: list[Answer] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return len(self.answers)

    @property
    def errors(self) -> int:
        return sum(not answer.ok(self.streamed) for answer in self.answers)

    @property
    def events(self) -> int:
        return sum(answer.events for answer in self.answers)

    def first_bytes_s(self) -> list[float]:
        return sorted(answer.first_byte_s for answer in self.answers if answer.ok(self.streamed))

    def totals_s(self) -> list[float]:
        return sorted(answer.total_s for answer in self.answers if answer.ok(self.streamed))


def quantile(ordered: list[float], ratio: float) -> float:
    """The value below which `ratio` (0 to 1) of an ascending list lies; nan of an empty one."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * ratio))] if ordered else float("nan")


async def closed_loop(port: int, connections: int, each: int, body_bytes: int, streamed: bool) -> Tally:
    """`connections` clients, each sending `each` requests one after the other; no two prompts are alike."""
    tally = Tally(streamed)
    filler = "x y z w " * (body_bytes // 8)

    async def client(number: int) -> None:
        pool = Pool(port)
        for turn in range(each):
            tally.answers.append(await pool.exchange(post(chat_body(f"{number}-{turn} {filler}", streamed))))
        pool.close()

    started = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(connections)))
    tally.elapsed_s = time.perf_counter() - started
    return tally


async def open_loop(ports: list[int], rate_per_s: float, seconds: float, streamed: bool, seed: int) -> list[Tally]:
    """Poisson arrivals of small requests at `rate_per_s` to every port, the ports taking turns.

    All ports share the machine's good and bad moments, so the difference between two of them is theirs.
    """
    tallies, pools, tasks = [Tally(streamed) for _ in ports], [Pool(port) for port in ports], []
    chance, loop = random.Random(seed), asyncio.get_running_loop()

    async def one(which: int, number: int) -> None:
        body = chat_body(f"{number} how are you?", streamed, max_tokens=2)
        tallies[which].answers.append(await pools[which].exchange(post(body)))

    due = loop.time()
    for number in range(round(rate_per_s * seconds) * len(ports)):
        due += chance.expovariate(rate_per_s * len(ports))
        await asyncio.sleep(max(0.0, due - loop.time()))
        tasks.append(asyncio.create_task(one(number % len(ports), number)))
    await asyncio.gather(*tasks)
    for pool in pools:
        pool.close()
    return tallies
