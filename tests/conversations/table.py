"""The framings that requests and answers come in, as bytes."""

from __future__ import annotations

from dataclasses import dataclass

CHAT = b"/v1/chat/completions"
BODY = b'{"model":"m","messages":[]}'


def _request(*lines: bytes, body: bytes = b"", first: bytes = b"POST " + CHAT + b" HTTP/1.1") -> bytes:
    return b"\r\n".join([first, b"Host: a.test", *lines, b"", b""]) + body


def _chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end


_SIZED = b"Content-Length: %d" % len(BODY)
_CHUNKED = b"Transfer-Encoding: chunked"
_OLD = b"POST " + CHAT + b" HTTP/1.0"

SIZED = _request(b"X-A: 1", _SIZED, body=BODY)
PIECES = _request(_CHUNKED, body=_chunks(BODY[:9], BODY[9:]))

REQUESTS: dict[str, bytes] = {
    "no body": _request(first=b"GET /v1/files HTTP/1.1"),
    "POST without a body": _request(),
    "sized": SIZED,
    "empty, sized": _request(b"content-length: 0"),
    "one byte": _request(b"content-length: 1", body=b"1"),
    "one chunk": _request(_CHUNKED, body=_chunks(BODY)),
    "many chunks": _request(_CHUNKED, body=_chunks(*(BODY[at : at + 2] for at in range(0, len(BODY), 2)))),
    "no chunk": _request(_CHUNKED, body=_chunks()),
    "chunks that look like ends": _request(_CHUNKED, body=_chunks(b"0\r\n\r\n", b"\r\n", b"0", b"\r\n\r\n")),
    "sizes in capitals, with zeros": _request(_CHUNKED, body=b"001B\r\n" + BODY + b"\r\n000\r\n\r\n"),
    "extensions": _request(_CHUNKED, body=b'1b;a;b=c;d="e f"\r\n' + BODY + b"\r\n0;last\r\n\r\n"),
    "trailers": _request(_CHUNKED, b"Trailer: X-T", body=_chunks(BODY, end=b"0\r\nX-T: 1\r\nX-U: 2\r\n\r\n")),
    "Expect": _request(_SIZED, b"Expect: 100-continue", body=BODY),
    "Expect, chunked": _request(_CHUNKED, b"Expect: 100-continue", body=_chunks(BODY)),
    "a body that looks like a request": _request(
        b"content-length: 33", body=b"GET /v1/x HTTP/1.1\r\nhost: x\r\n\r\n\r\n"
    ),
    "two": SIZED + PIECES,
    "two, chunks first": PIECES + SIZED,
    "three, the middle one without a body": SIZED + _request(first=b"GET /v1/files HTTP/1.1") + PIECES,
    "two, the last one closes": SIZED + _request(_SIZED, b"Connection: close", body=BODY),
    "HTTP/1.0": _request(_SIZED, body=BODY, first=_OLD),
    "HTTP/1.0 with keep-alive": _request(_SIZED, b"Connection: keep-alive", body=BODY, first=_OLD),
    "HTTP/1.0 without a body": _request(first=b"GET /v1/files HTTP/1.0"),
    "HTTP/1.1 with keep-alive": _request(_SIZED, b"Connection: Keep-Alive", b"Keep-Alive: timeout=5", body=BODY),
    "close": _request(_SIZED, b"Connection: close", body=BODY),
    "HEAD": _request(first=b"HEAD /v1/files HTTP/1.1"),
    "HEAD, then another": _request(first=b"HEAD /v1/files HTTP/1.1") + SIZED,
    "GET with a body": _request(_SIZED, body=BODY, first=b"GET /v1/files HTTP/1.1"),
    "DELETE with chunks": _request(_CHUNKED, body=_chunks(BODY), first=b"DELETE /v1/files/1 HTTP/1.1"),
    "OPTIONS": _request(first=b"OPTIONS /v1/files HTTP/1.1"),
    "an upgrade": _request(
        _SIZED, b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AA", body=BODY
    ),
    "an upgrade, chunked": _request(_CHUNKED, b"Connection: upgrade", b"Upgrade: websocket", body=_chunks(BODY)),
    "an upgrade without a body, then another": _request(
        b"Connection: upgrade", b"Upgrade: websocket", first=b"GET /v1/realtime HTTP/1.1"
    ) + SIZED,
    "names in capitals": _request(b"CONTENT-LENGTH: 2", b"X-SHOUT: Loud", body=b"{}").replace(b"Host", b"HOST"),
    "names in small letters": _request(b"content-length: 2", b"x-quiet: a", body=b"{}").replace(b"Host", b"host"),
    "spaces around values": _request(b"Content-Length: \t 2 \t", b"X-A: \t a \t b \t", b"X-B:c", body=b"{}"),
    "spaces around a coding": _request(b"Transfer-Encoding: \t chunked  ", body=_chunks(BODY)),
    "spaces around a host": SIZED.replace(b"a.test", b" a.test\t "),
    "empty values": _request(b"X-A:", b"X-B: ", b"Content-Length: 2", body=b"{}"),
    "bytes above ASCII": _request(b"X-A: \xe4\xff", b"Content-Length: 2", body=b"\xff\x00"),
    "one name twice": _request(b"X-A: 1", b"X-B: 2", b"X-A: 3", b"Content-Length: 2", body=b"{}"),
    "names that Connection names": _request(b"Connection: x-a, close", b"X-A: 1", b"X-B: 2", _SIZED, body=BODY),
    "empty lines in front": b"\r\n\r\n" + SIZED,
    "a whole URL": _request(_SIZED, body=BODY, first=b"POST http://b.test:1/v1/x?y=/../z HTTP/1.1"),
    "a query": _request(_SIZED, body=BODY, first=b"POST /v1/x?a=b&c=%2F..%2f&&=?/ HTTP/1.1"),
}  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """An engine's answer. `method`: what it answers; `closes`: the connection ends with it."""

    data: bytes
    method: bytes = b"POST"
    closes: bool = False
    early: bool = False
    """Whether it is sent as soon as the request's head is there."""


def _answer(*lines: bytes, body: bytes = b"", first: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([first, *lines, b"", b""]) + body


_EVENTS = b"Content-Type: text/event-stream; charset=utf-8"
_JSON = b"Content-Type: application/json"
_STREAM = (b'data: {"x":1}\n\n', b"data: [DONE]\n\n")
_WHOLE = _answer(_JSON, b"Content-Length: 7", body=b'{"a":1}')

ANSWERS: dict[str, Sent] = {
    "sized": Sent(_WHOLE),
    "empty, sized": Sent(_answer(b"content-length: 0")),
    "one byte": Sent(_answer(b"content-length: 1", body=b"1")),
    "one chunk": Sent(_answer(_JSON, _CHUNKED, body=_chunks(b'{"a":1}'))),
    "no chunk": Sent(_answer(_CHUNKED, body=_chunks())),
    "chunks that look like ends": Sent(_answer(_CHUNKED, body=_chunks(b"0\r\n\r\n", b"\r\n", b"0", b"\r\n\r\n"))),
    "sizes in capitals, with zeros": Sent(_answer(_CHUNKED, body=b"00A\r\n0123456789\r\n000\r\n\r\n")),
    "extensions": Sent(_answer(_CHUNKED, body=b'7;a;b=c;d="e f"\r\n{"a":1}\r\n0;last\r\n\r\n')),
    "trailers": Sent(
        _answer(_CHUNKED, b"Trailer: X-T", body=_chunks(b"ab", b"c", end=b"0\r\nX-T: 1\r\nX-U: 2\r\n\r\n"))
    ),
    "a stream": Sent(_answer(_EVENTS, _CHUNKED, body=_chunks(*_STREAM))),
    "a stream, two events a chunk": Sent(_answer(_EVENTS, _CHUNKED, body=_chunks(b"".join(_STREAM)))),
    "a stream, sized": Sent(_answer(_EVENTS, b"Content-Length: 29", body=b"".join(_STREAM))),
    "a stream until the end": Sent(_answer(_EVENTS, body=b"".join(_STREAM)), closes=True),
    "until the end": Sent(_answer(_JSON, body=b'{"a":1}'), closes=True),
    "nothing until the end": Sent(_answer(_JSON), closes=True),
    "sized, then the end": Sent(_answer(b"Connection: close", b"Content-Length: 2", body=b"{}"), closes=True),
    "chunked, then the end": Sent(_answer(b"Connection: close", _CHUNKED, body=_chunks(b"{}")), closes=True),
    "HTTP/1.0 until the end": Sent(_answer(body=b"abc", first=b"HTTP/1.0 200 OK"), closes=True),
    "HTTP/1.0, sized": Sent(_answer(b"Content-Length: 3", body=b"abc", first=b"HTTP/1.0 200 OK"), closes=True),
    "HTTP/1.0 kept alive": Sent(
        _answer(b"Content-Length: 3", b"Connection: keep-alive", body=b"abc", first=b"HTTP/1.0 200 OK")
    ),
    "204": Sent(_answer(b"ETag: x", first=b"HTTP/1.1 204 No Content")),
    "304": Sent(_answer(b"ETag: x", b"Content-Length: 17", first=b"HTTP/1.1 304 Not Modified")),
    "204 that closes": Sent(_answer(b"Connection: close", first=b"HTTP/1.1 204 No Content"), closes=True),
    "HEAD, sized": Sent(_answer(b"Content-Length: 17"), b"HEAD"),
    "HEAD, chunked": Sent(_answer(_CHUNKED), b"HEAD"),
    "HEAD, neither": Sent(_answer(_JSON), b"HEAD"),
    "100 in front": Sent(b"HTTP/1.1 100 Continue\r\n\r\n" + _WHOLE),
    "102 and 103 in front": Sent(
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + _WHOLE
    ),
    "103 in front of a stream": Sent(
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + _answer(_EVENTS, _CHUNKED, body=_chunks(*_STREAM))
    ),
    "early": Sent(_answer(b"Content-Length: 2", body=b"no", first=b"HTTP/1.1 413 Content Too Large"), early=True),
    "an error": Sent(_answer(_JSON, b"Content-Length: 13", body=b'{"error":"x"}', first=b"HTTP/1.1 500 Oh")),
    "pushed back": Sent(_answer(b"Retry-After: 0", b"Content-Length: 2", body=b"{}", first=b"HTTP/1.1 429 Busy")),
    "no reason": Sent(_answer(b"Content-Length: 2", body=b"{}", first=b"HTTP/1.1 200 ")),
    "an unknown status": Sent(_answer(b"Content-Length: 2", body=b"{}", first=b"HTTP/1.1 299 Made Up")),
    "spaces around values": Sent(_answer(b"Content-Length: \t 2 ", b"X-A: \t a \t b \t", b"X-B:c", body=b"{}")),
    "spaces around a coding": Sent(_answer(b"Transfer-Encoding: \t Chunked  ", body=_chunks(b"{}"))),
    "bytes above ASCII": Sent(_answer(b"X-A: \xe4\xff", b"Content-Length: 2", body=b"\xff\x00")),
    "one name twice": Sent(_answer(b"Set-Cookie: a=1", b"Set-Cookie: b=2", b"Content-Length: 0")),
    "names that Connection names": Sent(
        _answer(b"Connection: x-a", b"X-A: 1", b"X-B: 2", b"Keep-Alive: timeout=5", b"Content-Length: 0")
    ),
    "headers of the router's": Sent(
        _answer(b"X-Warmroute-Replica: r-x", b"X-Request-Id: forged", b"Content-Length: 0")
    ),
}  # fmt: skip
