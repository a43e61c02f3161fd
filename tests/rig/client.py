"""A client of raw bytes: what came back, byte by byte and chunk by chunk, and how the connection ended."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

DEADLINE_S = 10.0
"""Nothing in a test takes this long: what has not come by then never comes."""

CHAT = "/v1/chat/completions"

HeaderLines = Iterable[tuple[str, str]]


@dataclass
class Answer:
    """One answer. Header names are in lower case, in the order of arrival, duplicates kept."""

    raw_head: bytes
    version: str
    status: int
    headers: list[tuple[str, str]]
    raw_body: bytes = b""
    """As it came, chunk framing included."""
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    trailers: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def header(self, name: str) -> str | None:
        """The one value of a header; a duplicate fails the test."""
        values = self.all(name)
        assert len(values) < 2, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object; that it is one in OpenAI's form is checked here."""
        error: dict[str, Any] = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error

    def events(self) -> list[Any]:
        """What the `data:` lines of the stream say; "[DONE]" as it is."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    @property
    def replica(self) -> str | None:
        return self.header("x-warmroute-replica")

    @property
    def reason(self) -> str | None:
        return self.header("x-warmroute-decision")

    @property
    def matched_tokens(self) -> int:
        return int(self.header("x-warmroute-matched-tokens") or 0)


def request(
    target: str,
    body: bytes | Mapping[str, Any] | None = None,
    *,
    method: str | None = None,
    headers: HeaderLines = (),
    version: str = "1.1",
    sized: bool = True,
) -> bytes:
    """A request; a mapping goes as JSON, and `sized` says whether to announce the body's length."""
    lines = [("host", "warmroute.test"), *headers]
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        names = {name.lower() for name, _ in lines}
        if "content-type" not in names:
            lines.append(("content-type", "application/json"))
        if sized and not names & {"content-length", "transfer-encoding"}:
            lines.append(("content-length", str(len(data))))
    head = [f"{method or ('GET' if body is None else 'POST')} {target} HTTP/{version}"]
    head += [f"{name}: {value}" for name, value in lines]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + data


def chat(text: str = "hello there", *, headers: HeaderLines = (), version: str = "1.1", **fields: Any) -> bytes:
    """A chat of one message; 4 tokens are generated unless `fields` say otherwise."""
    body = {"model": "sim-model", "messages": [{"role": "user", "content": text}], "max_tokens": 4} | fields
    return request(CHAT, body, headers=headers, version=version)


def chunked(*parts: bytes, last: bytes = b"0\r\n\r\n") -> bytes:
    """Bytes framed as chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + last


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(
        cls,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        receive_buffer_bytes: int | None = None,
        read_ahead_bytes: int = 1 << 20,
    ) -> Client:
        """Connect to a port of 127.0.0.1; the two sizes bound what is taken off the wire before the test reads it."""
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        name = None if tls is None else "localhost"
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            made = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name, limit=read_ahead_bytes)
        except BaseException:
            sock.close()
            raise
        return cls(*made)

    @staticmethod
    async def turn() -> None:
        """Let the event loop go round a few times, so that what was written is a read of its own for the other side."""
        for _ in range(4):
            await asyncio.sleep(0)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, data: bytes) -> Answer:
        """Send a request and read its answer."""
        self.send(data)
        return await self.answer(head_only=data.startswith(b"HEAD "))

    async def ask_head(self, data: bytes) -> Answer:
        """Send a request and read no more than the head of its answer."""
        self.send(data)
        return await self.head()

    async def head(self) -> Answer:
        raw = await self._read(self.reader.readuntil(b"\r\n\r\n"))
        first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        version, status, _ = first.split(" ", 2)
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        return Answer(raw, version, int(status), headers)

    async def chunk(self, answer: Answer) -> bytes:
        """Read one chunk; an empty one ends the answer, and its trailers are read too."""
        line = await self._read(self.reader.readuntil(b"\r\n"))
        answer.raw_body += line
        size = int(line.split(b";")[0], 16)
        if size == 0:
            while (field_line := await self._read(self.reader.readuntil(b"\r\n"))) != b"\r\n":
                answer.raw_body += field_line
                name, _, value = field_line.decode("latin-1").strip().partition(":")
                answer.trailers.append((name.lower(), value.strip()))
            answer.raw_body += b"\r\n"
            return b""
        data = await self._read(self.reader.readexactly(size + 2))
        assert data.endswith(b"\r\n")
        answer.raw_body += data
        answer.chunks.append(data[:-2])
        answer.body += data[:-2]
        return data[:-2]

    async def event(self, answer: Answer) -> Any:
        """Read one chunk that is one server-sent event, and return what it says."""
        lines = (await self.chunk(answer)).decode().strip().split("\n")
        return json.loads(lines[-1].removeprefix("data: "))

    async def answer(self, *, head_only: bool = False) -> Answer:
        answer = await self.head()
        if head_only or answer.status < 200 or answer.status in (204, 304):
            return answer
        await self.rest(answer)
        return answer

    async def rest(self, answer: Answer) -> None:
        """Read the body, or what is left of a chunked one."""
        length = answer.header("content-length")
        if length is not None:
            answer.body = answer.raw_body = await self._read(self.reader.readexactly(int(length)))
        elif answer.header("transfer-encoding") == "chunked":
            while await self.chunk(answer):
                pass
        else:
            answer.body = answer.raw_body = await self._read(self.reader.read())

    async def remainder(self) -> tuple[bytes, str]:
        """Read to the end of the connection: the bytes, and "closed" or "reset"."""
        data = b""
        try:
            while part := await self._read(self.reader.read(65_536)):
                data += part
        except ConnectionResetError:
            return data, "reset"
        return data, "closed"

    async def closed(self) -> None:
        """Wait for the other side's end; nothing may come before it."""
        data, _ = await self.remainder()
        assert data == b""

    def leave(self) -> None:
        """Close the connection."""
        self.writer.close()

    def reset(self) -> None:
        """Close the connection with a reset."""
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def _read(self, reading: Any) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            data: bytes = await reading
            return data
