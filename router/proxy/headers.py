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

CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key"})
"""Where OpenAI's, Anthropic's and Azure's clients put their key."""

_REWRITTEN_WAY = frozenset({b"x-forwarded-for", b"forwarded"})

WAY = _REWRITTEN_WAY | {
    b"x-forwarded-proto",
    b"x-forwarded-host",
    b"x-forwarded-port",
    b"x-forwarded-prefix",
    b"x-forwarded-server",
    b"x-forwarded-ssl",
    b"x-real-ip",
}
"""What proxies say of a request's way, and what anybody can write."""

_RANK = b"x-data-parallel-rank"

TRACE_CONTEXT = frozenset({b"traceparent", b"tracestate"})
"""Which trace a request belongs to (W3C Trace Context); written anew where the router makes spans of its own."""

KEPT = (
    CREDENTIALS
    | WAY
    | {
        b"accept",
        b"cache-control",
        b"content-encoding",
        b"content-type",
        b"cookie",
        b"set-cookie",
        b"vary",
        b"x-request-id",
    }
)
"""Fields that are for the last recipient whatever Connection says: RFC 9110 section 7.6.1 forbids to name such there.
Dropping them at a client's word would take away what a proxy in front has put in to protect somebody."""

_NOT_REQUEST = HOP_BY_HOP | WAY | {b"host", b"content-length", b"expect", b"x-request-id"}
_NOT_ANSWER = HOP_BY_HOP | {b"content-length", b"x-request-id"}


def _dropped(keys: bool, rank: bool, trusted: bool) -> frozenset[bytes]:
    dropped = _NOT_REQUEST - WAY | _REWRITTEN_WAY if trusted else _NOT_REQUEST
    return dropped | (CREDENTIALS if keys else frozenset()) | (frozenset({_RANK}) if rank else frozenset())


_SWITCHES = (False, True)
DROPPED = {
    (keys, rank, trusted): _dropped(keys, rank, trusted)
    for keys in _SWITCHES for rank in _SWITCHES for trusted in _SWITCHES
}  # fmt: skip
"""What of a request's head does not go on: by whether the client's keys do, whether the router names the rank, and
whether the client is a trusted proxy. One look-up a header, since there are twenty in every request."""

_NONE: set[bytes] = set()

OWN_PREFIX = b"x-warmroute-"
"""Answer headers that only this router writes."""

_CORS_PREFIX = b"access-control-"
"""Answer headers of which all come from the router where one does."""


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
    if not values or values == [b"keep-alive"]:
        return _NONE
    return {token.strip().lower() for value in values for token in value.split(b",")} - KEPT


def request_head(
    method: bytes,
    target: bytes,
    headers: Headers,
    host: bytes,
    request_id: bytes,
    body_bytes: int | None,
    own_lines: bytes = b"",
    dropped: frozenset[bytes] = _NOT_REQUEST,
) -> bytes:
    """Build the head of an upstream request, with `own_lines` of the router's and without what is `dropped`."""
    named = _named_by_connection(headers)
    parts = [method, b" ", target, b" HTTP/1.1\r\nhost: ", host, b"\r\n"]
    for key, value in headers:
        if key in dropped or key in named:
            continue
        parts += (key, b": ", value, b"\r\n")
    parts.append(own_lines)
    if body_bytes is not None:
        parts.append(b"content-length: %d\r\n" % body_bytes)
    parts += (b"x-request-id: ", request_id, b"\r\n\r\n")
    return b"".join(parts)


def answer_head(status: int, headers: Headers, framing: bytes, own: bytes, close: bool) -> bytes:
    """Build the head of an answer from the engine's fields, the framing line and the router's `own` lines.

    Where the router says what web pages may do, the engine does not.
    """
    named = _named_by_connection(headers)
    foreign = (OWN_PREFIX, _CORS_PREFIX) if b"\naccess-control-" in own else OWN_PREFIX
    parts = [STATUS_LINES[status]]
    for key, value in headers:
        if key in _NOT_ANSWER or key in named or key.startswith(foreign):
            continue
        parts += (key, b": ", value, b"\r\n")
    parts += (framing, own)
    parts.append(b"connection: close\r\n\r\n" if close else b"\r\n")
    return b"".join(parts)
