"""Raw sockets for the tests of the simulated server: what came, chunk by chunk, and how the connection ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

DEADLINE_S = 10.0
"""Nothing here takes this long; a test that waits for what never comes fails after it."""

MESSAGES: Any = [{"role": "user", "content": "hello there"}]
LONG: Any = [{"role": "system", "content": "You are a careful assistant who answers at length. " * 30}, *MESSAGES]
CHAT = "/v1/chat/completions"


def on_both_loops(test: Callable[[], Awaitable[None]]) -> Any:
    """Run an async test once under asyncio's loop and once under uvloop's."""

    def sync(run: Callable[..., None]) -> None:
        run(test())

    sync.__name__ = test.__name__
    sync.__doc__ = test.__doc__
    return pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])(sync)


@dataclass
class Answer:
    status: int
    version: str
    headers: dict[str, str]
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.body)

    def data(self) -> list[Any]:
        """What the OpenAI-style events say; "[DONE]" as it is."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    def text(self) -> str:
        """The text of a streamed chat."""
        deltas = [event["choices"][0]["delta"] for event in self.data() if event != "[DONE]" and event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)


def request(
    target: str,
    body: Any = None,
    *,
    method: str | None = None,
    headers: dict[str, str] | None = None,
    version: str = "1.1",
) -> bytes:
    """Return a request; a body that is not bytes goes as JSON."""
    lines = {"host": "sim"}
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines |= {"content-length": str(len(data))}
        if not isinstance(body, bytes):
            lines["content-type"] = "application/json"
    lines |= headers or {}
    head = [f"{method or ('GET' if body is None else 'POST')} {target} HTTP/{version}"]
    head += [f"{name}: {value}" for name, value in lines.items()]
    return "\r\n".join([*head, "", ""]).encode() + data


def chat(**fields: Any) -> bytes:
    """Return a chat request."""
    return request(CHAT, {"messages": MESSAGES, "max_tokens": 4, "ignore_eos": True} | fields)


class Wire:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        self.writer.close()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.answer()

    async def head(self) -> Answer:
        raw = await self._read(self.reader.readuntil(b"\r\n\r\n"))
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        version, status, _ = first.split(" ", 2)
        return Answer(int(status), version, _fields(lines))

    async def chunk(self, answer: Answer) -> bytes:
        """Read one chunk; an empty one ends the answer, and its trailers are read too."""
        size = int(await self._read(self.reader.readuntil(b"\r\n")), 16)
        if size == 0:
            while (line := await self._read(self.reader.readuntil(b"\r\n"))) != b"\r\n":
                name, _, value = line.decode().strip().partition(": ")
                answer.trailers[name] = value
            return b""
        data = (await self._read(self.reader.readexactly(size + 2)))[:-2]
        answer.chunks.append(data)
        answer.body += data
        return data

    async def begin(self, count: int) -> Answer:
        """Read the head and so many chunks."""
        answer = await self.head()
        for _ in range(count):
            await self.chunk(answer)
        return answer

    async def answer(self, *, head_only: bool = False) -> Answer:
        answer = await self.head()
        if "content-length" in answer.headers:
            if not head_only:
                answer.body = await self._read(self.reader.readexactly(int(answer.headers["content-length"])))
        elif answer.headers.get("transfer-encoding") == "chunked":
            while await self.chunk(answer):
                pass
        elif answer.status >= 200 and answer.status not in (204, 304):
            answer.body = await self._read(self.reader.read())
        return answer

    async def ending(self) -> str:
        """Read to the end: "closed" or "reset"."""
        try:
            await self._read(self.reader.read())
        except ConnectionResetError:
            return "reset"
        return "closed"

    async def _read(self, reading: Any) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            data: bytes = await reading
            return data


def _fields(lines: list[str]) -> dict[str, str]:
    pairs = (line.split(": ", 1) for line in lines)
    return {name.lower(): value for name, value in pairs}


async def ask(port: int, data: bytes) -> Answer:
    """Send one request on a connection of its own."""
    async with await Wire.open(port) as wire:
        return await wire.ask(data)
