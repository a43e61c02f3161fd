"""One request as it came in: its head, and its body as far as it has arrived."""

from __future__ import annotations

from router.proxy.headers import Headers, first_values, request_head


class Incoming:
    """A request being received. All of its body is kept until the answer begins: it may have to be sent again."""

    __slots__ = ("complete", "fields", "headers", "http_1_0", "method", "parts", "path", "size_bytes", "target")

    def __init__(self, method: bytes, target: bytes, path: str, headers: Headers, http_1_0: bool) -> None:
        """`target` is sent on as it came (path and query); `path` is its path alone."""
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.fields = first_values(headers)
        self.http_1_0 = http_1_0
        self.parts: list[bytes] = []
        self.size_bytes = 0
        self.complete = False

    @property
    def announced_bytes(self) -> int:
        """The body's length by its header; 0 where it has none (chunked, or no body)."""
        value = self.fields.get(b"content-length")
        return int(value) if value is not None and value.isdigit() else 0

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

    def upstream_head(self, host: bytes, request_id: bytes, authorization: bytes | None) -> bytes:
        """Build the head for the upstream request (see `headers.request_head`)."""
        length = self.size_bytes if self.has_body else None
        return request_head(self.method, self.target, self.headers, host, request_id, length, authorization)

    def add(self, data: bytes) -> None:
        """Take a piece of the body in."""
        self.parts.append(data)
        self.size_bytes += len(data)

    def body(self) -> bytes:
        """Return the body, which is kept in one piece from now on."""
        if len(self.parts) != 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]

    def replace_body(self, body: bytes) -> None:
        """Send another body on than the one that came."""
        self.parts, self.size_bytes = [body], len(body)

    def drop_body(self) -> None:
        """Give the body's memory back: nothing can be sent again."""
        self.parts = []
