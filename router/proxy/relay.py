"""How an answer's body is written on: as it came where both sides frame alike, re-framed where they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httptools

from router.proxy.upstream import Framing

Write = Callable[[bytes], None]

LAST_CHUNK = b"0\r\n\r\n"


class Dechunker:
    """Writes a chunked body's content without its framing, for HTTP/1.0 clients."""

    def __init__(self, write: Write) -> None:
        self.on_body = write
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")

    def __call__(self, data: bytes) -> None:
        self._parser.feed_data(data)


def as_chunk(data: bytes) -> bytes:
    """Frame bytes as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Body:
    """The way of one answer's body to the client."""

    __slots__ = ("_framing", "_http_1_0", "_last", "_raw", "_transport", "framing_line", "write")

    def __init__(
        self, transport: asyncio.Transport, framing: Framing, length: bytes | None, http_1_0: bool, headless: bool
    ) -> None:
        """`length`: the engine's Content-Length; `headless`: an answer to HEAD, without the body it announces."""
        write = transport.write
        self.write: Write = write
        self._transport = transport
        self._raw = write
        self._last = b""
        self._framing = framing
        self._http_1_0 = http_1_0
        self.framing_line = b""
        if framing is Framing.SIZED or (headless and length is not None):
            self.framing_line = b"content-length: %b\r\n" % (length or b"0")
        elif framing is Framing.CHUNKED and http_1_0:
            self.write = Dechunker(write)
        elif framing is Framing.CHUNKED:
            self.framing_line = b"transfer-encoding: chunked\r\n"
        elif framing is Framing.UNTIL_CLOSE and not http_1_0:
            self.framing_line = b"transfer-encoding: chunked\r\n"
            self.write = lambda data: write(as_chunk(data))
            self._last = LAST_CHUNK

    def begin(self, head: bytes, data: bytes) -> None:
        """Write the head and the first bytes of the body, in one call to the kernel where they go on as they came."""
        if self.write is self._raw:
            self._transport.writelines((head, data))
        else:
            self._raw(head)
            if data:  # an empty chunk would end the body
                self.write(data)

    def end(self) -> None:
        """Write what ends the body, where the engine's own bytes do not."""
        if self._last:
            self._raw(self._last)

    def cut(self, event: bytes, between_chunks: bool) -> None:
        """Write a last event behind what came of an event stream that will not be completed; nothing ends the body.

        `between_chunks`: the bytes written so far end with a chunk, so that another may follow.
        """
        if self._http_1_0:
            self._raw(event)
        elif self._framing is Framing.UNTIL_CLOSE or (self._framing is Framing.CHUNKED and between_chunks):
            self._raw(as_chunk(event))
