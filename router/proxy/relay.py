"""How an answer's body is written on: as it came where both sides frame alike, re-framed where they do not."""

from __future__ import annotations

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

    __slots__ = ("closes", "framing_line", "last", "write")

    def __init__(self, write: Write, framing: Framing, length: bytes | None, http_1_0: bool, headless: bool) -> None:
        """`length`: the engine's Content-Length; `headless`: an answer to HEAD, without the body it announces."""
        self.write: Write = write
        self.last = b""
        self.closes = http_1_0
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
            self.last = LAST_CHUNK
