"""The reading half of a client's connection: llhttp, and how large and how slow a request may be."""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from enum import Enum
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.proxy.door import MAX_FIELDS, Door
from router.proxy.errors import RouterError
from router.proxy.headers import Headers, find
from router.proxy.incoming import Incoming
from router.proxy.plane import Plane

LOGGER = logging.getLogger("warmroute.proxy")


def body_framing(headers: Headers) -> bytes:
    """Return the header line that frames a request's body; empty where it has none."""
    if find(headers, b"transfer-encoding") is not None:
        return b"transfer-encoding: chunked"
    length = find(headers, b"content-length")
    return b"" if length in (None, b"0") else b"content-length: %b" % length


_HOST = re.compile(rb"(?:\[[\w.:%~!$&'()*+,;=-]+\]|[\w.~%!$&'()*+,;=-]*)(?::[0-9]*)?[ \t]*", re.ASCII)
"""A host, and perhaps a port: RFC 9110 section 7.2, RFC 3986 section 3.2.2. The parser leaves spaces behind it."""


class Part(Enum):
    """What of a request is coming in."""

    NONE = "none"
    HEAD = "head"
    BODY = "body"


NOTHING, HEAD, BODY = Part


class Unreadable(Exception):
    """Raised through the parser: what came is not to be read any further."""


class Receiver(HttpToolsProtocol):
    """Reads requests; what to do with them is said by `router.proxy.downstream.Downstream`."""

    plane: Plane
    door: Door

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._error = RouterError.BAD_REQUEST
        """What is wrong with bytes that can't be read on."""
        self._discarding = False
        """Whether all that comes from now on is thrown away."""
        self._host = b"\n"
        """What the last request that was looked at had as Host; at first what none can have."""
        self._skipped_body = b""
        self._head_is_known = False
        self._part = NOTHING
        self._is_new = False
        """Whether the request that is coming in began in the present read."""
        self._read_bytes = 0
        """Size of the present read."""
        self._first_bytes = 0
        """Size of the read in which the request began."""
        self._unfinished_bytes = 0
        """Of its head, or of what is no body, in the reads since; no more than a head may have."""
        self._reads = 0
        self._reads_seen = 0
        self._since_s = 0.0

    # What the other half says

    @abstractmethod
    def _refuse_bytes(self, error: RouterError) -> None:
        """Refuse what can't be read on."""

    @abstractmethod
    def _fail(self, error: RouterError) -> None:
        """End the connection, and the request that is coming in, for a mistake of ours or for lack of memory."""

    @abstractmethod
    def _wait_if_idle(self) -> None:
        """Nothing is coming in."""

    # asyncio's side

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        self.plane.idle.discard(self)
        self._read_bytes = len(data)
        behind_upgrade: bytes | None = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as paused:
            behind_upgrade = data[paused.args[0] :]
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, Unreadable | httptools.HttpParserError):
                self._refuse_bytes(self._error)
            else:
                LOGGER.error("a request could not be handled", exc_info=cause)
                self._fail(RouterError.BODIES_FULL if isinstance(cause, MemoryError) else RouterError.INTERNAL)
        except httptools.HttpParserError:
            self._refuse_bytes(self._error)
        else:
            if self._part is not NOTHING or self.cycle is None or self.cycle.response_complete:
                self._after_reading()
        if behind_upgrade is not None:  # not within the handler: an error there would have this one for its context
            self._go_on_without_upgrade(behind_upgrade)

    def _after_reading(self) -> None:
        if self._part is not NOTHING:
            self._watch()
        elif self.cycle is None or self.cycle.response_complete:
            self._wait_if_idle()

    def _watch(self) -> None:
        """Keep an eye on a request that has come in part."""
        self._reads += 1
        if self._is_new:
            self._is_new = False
            self._first_bytes = self._read_bytes
            self._since_s = self.plane.clock()
            self.door.receiving.add(self)
            return
        self._unfinished_bytes += self._read_bytes
        if self._unfinished_bytes > self.door.rules.max_head_bytes:
            self._refuse_bytes(RouterError.HEAD_TOO_LARGE if self._part is HEAD else RouterError.BAD_REQUEST)

    def check_receiving(self, now: float) -> None:
        """Refuse the request that is coming in if its head takes too long, or its body does not go on.

        While an earlier one is being answered, or nothing is read, the client is not to blame.
        """
        rules = self.door.rules
        if self._part is HEAD:
            limit_s, moves = rules.head_timeout_s, self.cycle is not None and not self.cycle.response_complete
        else:
            limit_s, moves = rules.body_timeout_s, self._reads != self._reads_seen
        self._reads_seen = self._reads
        if moves or self.pipeline or self.flow.read_paused:
            self._since_s = now
        elif now - self._since_s >= limit_s:
            self._refuse_bytes(RouterError.REQUEST_TIMEOUT)

    def _go_on_without_upgrade(self, rest: bytes) -> None:
        """Read on as if no upgrade had been asked for: the parser stops there, in front of the request's body too.

        Java's HTTP client asks http:// servers for h2c with its first request, body and all.
        """
        framing, self._skipped_body = self._skipped_body, b""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        if framing:
            self._head_is_known = True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        if rest:
            self.data_received(rest)
        else:
            self._after_reading()

    # llhttp's side

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._part = HEAD
        self._is_new = True

    def _make_scope(self, incoming: Incoming) -> None:
        """Do what uvicorn does when a message begins: only its own requests need a scope."""
        super().on_message_begin()
        self.url = incoming.target
        self.expect_100_continue = incoming.expects_continue
        self.headers.extend(incoming.headers)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def _stop(self, error: RouterError) -> None:
        self._error = error
        raise Unreadable

    def _is_odd(self, incoming: Incoming, version: str) -> bool:
        """Tell whether a head has to be looked at more closely."""
        rules, came_bytes = self.door.rules, self._read_bytes + self._first_bytes + self._unfinished_bytes
        return (
            version != "1.1"
            or b"transfer-encoding" in incoming.fields
            or incoming.fields.get(b"host") != self._host
            or len(incoming.fields) != len(incoming.headers)
            or len(incoming.headers) > MAX_FIELDS
            or came_bytes > rules.max_head_bytes
            or len(self.url) > rules.max_url_bytes
        )

    def _check_head(self, incoming: Incoming, version: str) -> None:
        """Refuse what the parser lets pass and others may read otherwise: RFC 9112 sections 2.3, 3.2 and 6.1."""
        if version not in ("1.1", "1.0"):
            self._stop(RouterError.BAD_REQUEST)
        if b"transfer-encoding" in incoming.fields and not incoming.is_chunked:
            self._stop(RouterError.BAD_REQUEST)
        self._check_host(incoming)
        if len(self.url) > self.door.rules.max_url_bytes:
            self._stop(RouterError.URL_TOO_LONG)
        if len(incoming.headers) > MAX_FIELDS or self._is_large(incoming):
            self._stop(RouterError.HEAD_TOO_LARGE)

    def _check_host(self, incoming: Incoming) -> None:
        hosts = [value for name, value in incoming.headers if name == b"host"]
        if len(hosts) > 1 or not (hosts or incoming.http_1_0) or not all(map(_HOST.fullmatch, hosts)):
            self._stop(RouterError.BAD_REQUEST)
        self._host = incoming.fields.get(b"host", self._host)

    def _is_large(self, incoming: Incoming) -> bool:
        """Tell whether it is the head that is too large, and not what came together with it."""
        return incoming.head_bytes + len(self.url) > self.door.rules.max_head_bytes

    def _finished(self) -> None:
        """The request has come whole."""
        self._part = NOTHING
        self._first_bytes = self._unfinished_bytes = 0
        if not self._is_new:
            self.door.receiving.discard(self)
