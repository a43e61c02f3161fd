"""One request as it came in: its head, and its body as far as it has arrived."""

from __future__ import annotations

import re

from router.proxy.bodies import UNCOUNTED, Bodies
from router.proxy.forwarded import NOWHERE, Forwarded
from router.proxy.headers import DROPPED, Headers, first_values, request_head

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
"""Ids that are taken from clients: they stand in logs, and in headers both ways."""


class Incoming:
    """A request being received. All of its body is kept until the answer begins: it may have to be sent again."""

    __slots__ = (
        "bodies", "complete", "fields", "forwarded", "headers", "http_1_0", "method", "parts", "path", "size_bytes",
        "target",
    )  # fmt: skip

    def __init__(
        self,
        method: bytes,
        target: bytes,
        path: str,
        headers: Headers,
        http_1_0: bool,
        forwarded: Forwarded = NOWHERE,
        bodies: Bodies = UNCOUNTED,
    ) -> None:
        """`target` is sent on as it came (path and query); `path` is its path alone; `forwarded` is its connection's.

        What of its body is in memory is counted in `bodies`, until `drop_body`.
        A request id that is no short printable word is taken for none.
        """
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.fields = fields = first_values(headers)
        self.http_1_0 = http_1_0
        self.forwarded = forwarded
        self.bodies = bodies
        self.parts: list[bytes] = []
        self.size_bytes = 0
        self.complete = False
        request_id = fields.get(b"x-request-id")
        if request_id is not None and _REQUEST_ID.fullmatch(request_id) is None:
            del fields[b"x-request-id"]

    @property
    def announced_bytes(self) -> int:
        """The body's length by its header; 0 where it has none (chunked, or no body)."""
        value = self.fields.get(b"content-length")
        return int(value) if value is not None and value.strip().isdigit() else 0

    @property
    def is_chunked(self) -> bool:
        """Tell whether the body is chunked and coded in no other way."""
        if b"transfer-encoding" not in self.fields:
            return False
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        return not self.http_1_0 and len(codings) == 1 and codings[0].strip().lower() == b"chunked"

    @property
    def expects_continue(self) -> bool:
        """Tell whether the client waits for a word before it sends its body."""
        return self.fields.get(b"expect", b"").strip().lower() == b"100-continue"

    @property
    def head_bytes(self) -> int:
        """Size of the head's fields, with what stands between them."""
        return sum(len(name) + len(value) + 4 for name, value in self.headers)

    @property
    def has_body(self) -> bool:
        """Tell whether the request has a body, even an empty one."""
        fields = self.fields
        return self.size_bytes > 0 or b"content-length" in fields or b"transfer-encoding" in fields

    def first_of(self, names: tuple[bytes, ...]) -> str | None:
        """Return the value of the first of these headers that has one."""
        for name in names:
            value = self.fields.get(name)
            if value:
                return value.decode("latin-1")
        return None

    def take(self, names: frozenset[bytes]) -> Headers:
        """Take headers out, which do not go on, and return them."""
        if names.isdisjoint(self.fields):
            return []
        taken = [header for header in self.headers if header[0] in names]
        self.headers = [header for header in self.headers if header[0] not in names]
        return taken

    def upstream_head(
        self,
        host: bytes,
        request_id: bytes,
        authorization: bytes | None,
        own_lines: bytes = b"",
        trace_lines: bytes = b"",
    ) -> bytes:
        """Build the head for the upstream request (see `headers.request_head`).

        `authorization` stands in place of the client's key; an empty one takes it away, None lets it pass. `own_lines`
        name the engine's rank in place of the client; `trace_lines` the trace, whose headers were taken out before.
        """
        length = self.size_bytes if self.has_body else None
        headers, forwarded = self.headers, self.forwarded
        dropped = DROPPED[authorization is not None, own_lines != b"", forwarded.trusted]
        own_lines = forwarded.lines(headers) + own_lines + trace_lines
        if authorization:
            own_lines += b"authorization: %b\r\n" % authorization
        return request_head(self.method, self.target, headers, host, request_id, length, own_lines, dropped)

    def add(self, data: bytes) -> None:
        """Take a piece of the body in."""
        self.parts.append(data)
        self.size_bytes += len(data)
        self.bodies.held_bytes += len(data)

    def body(self) -> bytes:
        """Return the body, which is kept in one piece from now on."""
        if len(self.parts) != 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]

    def replace_body(self, body: bytes) -> None:
        """Send another body on than the one that came."""
        self.bodies.held_bytes += len(body) - self.size_bytes
        self.parts, self.size_bytes = [body], len(body)

    def drop_body(self) -> None:
        """Give the body's memory back: nothing can be sent again."""
        if self.parts:
            self.bodies.held_bytes -= self.size_bytes
            self.parts = []
