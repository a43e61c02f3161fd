"""Heads, re-serialised from parsed fields and never copied, so that nothing can be smuggled through."""

from __future__ import annotations

import http

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, in the order of arrival."""

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""RFC 9110 section 7.6.1; these speak of one connection."""

_NOT_REQUEST = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-request-id"}
_NOT_ANSWER = HOP_BY_HOP | {b"content-length", b"x-request-id"}

_NONE: set[bytes] = set()

OWN_PREFIX = b"x-warmroute-"
"""Answer headers that only this router writes."""


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES = {status: _status_line(status) for status in range(100, 1000)}


def find(headers: Headers, name: bytes) -> bytes | None:
    """Return the first value of a header, or None."""
    for key, value in headers:
        if key == name:
            return value
    return None


def first_values(headers: Headers) -> dict[bytes, bytes]:
    """Return the first value of each header by its name."""
    return dict(reversed(headers))


def _named_by_connection(headers: Headers) -> set[bytes]:
    """Return the names that Connection headers declare to be of this connection only (RFC 9110 section 7.6.1)."""
    values = [value for key, value in headers if key == b"connection"]
    return {token.strip().lower() for value in values for token in value.split(b",")} if values else _NONE


def request_head(
    method: bytes,
    target: bytes,
    headers: Headers,
    host: bytes,
    request_id: bytes,
    body_bytes: int | None,
    authorization: bytes | None,
) -> bytes:
    """Build the head of an upstream request. `authorization` replaces the client's where it is given."""
    named = _named_by_connection(headers)
    parts = [method, b" ", target, b" HTTP/1.1\r\nhost: ", host, b"\r\n"]
    for key, value in headers:
        if key in _NOT_REQUEST or key in named or (authorization is not None and key == b"authorization"):
            continue
        parts += (key, b": ", value, b"\r\n")
    if authorization is not None:
        parts += (b"authorization: ", authorization, b"\r\n")
    if body_bytes is not None:
        parts.append(b"content-length: %d\r\n" % body_bytes)
    parts += (b"x-request-id: ", request_id, b"\r\n\r\n")
    return b"".join(parts)


def answer_head(status: int, headers: Headers, framing: bytes, own: bytes, close: bool) -> bytes:
    """Build the head of an answer from the engine's fields, the framing line and the router's `own` lines."""
    named = _named_by_connection(headers)
    parts = [STATUS_LINES[status]]
    for key, value in headers:
        if key in _NOT_ANSWER or key in named or key.startswith(OWN_PREFIX):
            continue
        parts += (key, b": ", value, b"\r\n")
    parts += (framing, own)
    parts.append(b"connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(parts)
