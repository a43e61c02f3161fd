"""Requests that two servers in a row may read in two ways, by what is odd about them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.rig.client import CHAT

HIDDEN = b"POST /sleep HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
"""What an attacker would have the engine read as a request of its own."""

CHUNKED = "transfer-encoding: chunked"
_EMPTY = b"0\r\n\r\n"
_BODY = b"2\r\n{}\r\n0\r\n\r\n"


@dataclass(frozen=True)
class Entry:
    """`section`: of RFC 9112 unless it says otherwise. `why`: our answer, where nginx gives another."""

    data: bytes
    section: str
    why: str = ""


def raw(*lines: str, body: bytes = b"", first: str = f"POST {CHAT} HTTP/1.1", host: str = "host: x") -> bytes:
    """A request with these lines as they are."""
    heads = [host] if host else []
    return "\r\n".join([first, *heads, *lines, "", ""]).encode("latin-1") + body


def _chunks(body: bytes) -> bytes:
    return raw(CHUNKED, body=body)


LENGTHS_AND_CODINGS = {
    "length, then chunked (CL.TE)": Entry(raw("content-length: 4", CHUNKED, body=_EMPTY + HIDDEN), "6.1"),
    "chunked, then length (TE.CL)": Entry(raw(CHUNKED, "content-length: 4", body=_EMPTY + HIDDEN), "6.1"),
    "length and an unknown coding": Entry(
        raw("content-length: 2", "transfer-encoding: x", body=b"{}"),
        "6.1",
        why="a length beside a coding: close, whatever the coding is",
    ),
    "chunked twice, in two lines (TE.TE)": Entry(raw(CHUNKED, CHUNKED, body=_EMPTY + HIDDEN), "6.1"),
    "chunked twice, in one line": Entry(
        raw("transfer-encoding: chunked, chunked", body=_EMPTY), "6.1", why="chunked may be applied once only"
    ),
    "chunked, then identity": Entry(
        raw("transfer-encoding: chunked, identity", body=_EMPTY + HIDDEN),
        "6.1",
        why="chunked is not last: 400 is a MUST",
    ),
    "identity, then chunked, in two lines": Entry(raw("transfer-encoding: identity", CHUNKED, body=_EMPTY), "6.1"),
    "chunked, then identity, in two lines": Entry(raw(CHUNKED, "transfer-encoding: identity", body=_EMPTY), "6.1"),
    "gzip, then chunked": Entry(
        raw("transfer-encoding: gzip, chunked", body=_EMPTY),
        "6.1",
        why="501 is a SHOULD; clients try what is 5xx again",
    ),
    "xchunked": Entry(
        raw("transfer-encoding: xchunked", body=_EMPTY + HIDDEN), "6.1", why="chunked is not last: 400 is a MUST"
    ),
    "chunked in capitals, a space behind": Entry(raw("transfer-encoding: CHUNKED ", body=_BODY), "7"),
    "chunked, a tab behind": Entry(
        raw("transfer-encoding: chunked\t", body=_BODY), "7", why="nobody sends it, and parsers disagree"
    ),
    "chunked, a vertical tab in front": Entry(
        raw("transfer-encoding: \x0bchunked", body=_EMPTY + HIDDEN), "5.5 of 9110", why="no whitespace in HTTP"
    ),
    "chunked with a parameter": Entry(
        raw("transfer-encoding: chunked;q=1", body=_EMPTY), "7", why="chunked has none: not last, so 400"
    ),
    "chunked in quotes": Entry(raw('transfer-encoding: "chunked"', body=_EMPTY), "7", why="not last, so 400"),
    "an empty coding": Entry(raw("transfer-encoding:", body=_EMPTY), "6.1", why="not last, so 400"),
    "chunked in HTTP/1.0": Entry(raw(CHUNKED, body=_EMPTY, first=f"POST {CHAT} HTTP/1.0"), "6.1"),
    "a coding behind a folded line": Entry(raw("transfer-encoding:", " chunked", body=_EMPTY + HIDDEN), "5.2"),
    "a space before the colon of a coding": Entry(raw("transfer-encoding : chunked", body=_EMPTY + HIDDEN), "5.1"),
    "an underscore in place of the hyphen": Entry(
        raw("transfer_encoding: chunked", "content-length: 2", body=b"{}"), "5.1"
    ),
}

LENGTHS = {
    "no length, and a body (CL.0)": Entry(
        raw(body=HIDDEN),
        "6.3",
        why="no length is no body: the rest is the next request, and `/sleep` is none for engines",
    ),
    "length 0, and a body (CL.0)": Entry(raw("content-length: 0", body=HIDDEN), "6.3", why="the same"),
    "GET with a length, its body a request": Entry(
        raw(f"content-length: {len(HIDDEN)}", body=HIDDEN, first="GET /v1/files HTTP/1.1"), "6.3"
    ),
    "two that differ": Entry(raw("content-length: 2", "content-length: 3", body=b"{}x"), "6.3"),
    "the same twice": Entry(raw("content-length: 2", "content-length: 2", body=b"{}"), "6.3"),
    "the same twice in one line": Entry(raw("content-length: 2, 2", body=b"{}"), "6.3"),
    "a plus": Entry(raw("content-length: +2", body=b"{}"), "6.2"),
    "a minus": Entry(raw("content-length: -2", body=b"{}"), "6.2"),
    "in hexadecimal": Entry(raw("content-length: 0x2", body=b"{}"), "6.2"),
    "with an exponent": Entry(raw("content-length: 2e0", body=b"{}"), "6.2"),
    "with a point": Entry(raw("content-length: 2.0", body=b"{}"), "6.2"),
    "with a space within": Entry(raw("content-length: 2 0", body=b"{}"), "6.2"),
    "with a vertical tab": Entry(raw("content-length: \x0b2", body=b"{}"), "6.2"),
    "empty": Entry(raw("content-length:", body=b"{}"), "6.2"),
    "above 64 bits": Entry(raw("content-length: 18446744073709551618", body=b"{}"), "6.2"),
    "zeros in front": Entry(raw("content-length: 0002", body=b"{}"), "6.2"),
    "spaces behind": Entry(raw("content-length: 2  ", body=b"{}"), "5.1"),
    "a space before the colon": Entry(raw("content-length : 2", body=b"{}"), "5.1"),
    "folded": Entry(raw("content-length:", " 2", body=b"{}"), "5.2"),
    "a body longer than it": Entry(raw("content-length: 2", body=b"{}" + HIDDEN), "6.3", why="the same"),
}

CHUNKS = {
    "an extension": Entry(_chunks(b"2;name=value\r\n{}\r\n0\r\n\r\n"), "7.1.1"),
    "an extension in quotes": Entry(_chunks(b'2;a="b;c"\r\n{}\r\n0\r\n\r\n'), "7.1.1"),
    "an extension with a bare line feed": Entry(
        _chunks(b"2;a\n{}\r\n0\r\n\r\n"),
        "7.1.1",
        why="a line feed alone may end a line of a head (2.2), not of a chunk",
    ),
    "an extension with a bare carriage return": Entry(_chunks(b"2;a\rb\r\n{}\r\n0\r\n\r\n"), "7.1.1"),
    "a trailer": Entry(_chunks(b"2\r\n{}\r\n0\r\nauthorization: forged\r\n\r\n"), "6.5.1 of 9110"),
    "a length for a trailer": Entry(
        _chunks(b"2\r\n{}\r\n0\r\ncontent-length: 9\r\n\r\n"),
        "6.5.1 of 9110",
        why="a trailer that would frame the message: refused, not dropped",
    ),
    "a folded trailer": Entry(_chunks(b"2\r\n{}\r\n0\r\nx: y\r\n z\r\n\r\n"), "5.2", why="folding is obsolete"),
    "a size that is none": Entry(_chunks(b"zz\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "an empty size": Entry(_chunks(b"\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "a minus": Entry(_chunks(b"-2\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "a plus": Entry(_chunks(b"+2\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "0x": Entry(_chunks(b"0x2\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "an underscore": Entry(_chunks(b"0_2\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "a space behind a size": Entry(_chunks(b"2 \r\n{}\r\n0\r\n\r\n"), "7.1", why="the grammar has none there"),
    "a space in front of a size": Entry(_chunks(b" 2\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "a size above 64 bits": Entry(_chunks(b"10000000000000002\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "40 zeros in front of a size": Entry(_chunks(b"0" * 40 + b"2\r\n{}\r\n0\r\n\r\n"), "7.1"),
    "more bytes than its size": Entry(_chunks(b"2\r\n{}}}\r\n0\r\n\r\n" + HIDDEN), "7.1"),
    "fewer bytes than its size": Entry(_chunks(b"5\r\n{}\r\n0\r\n\r\n" + HIDDEN), "7.1"),
    "no line end behind a chunk": Entry(_chunks(b"2\r\n{}0\r\n\r\n"), "7.1"),
    "bare line feeds": Entry(
        _chunks(b"2\n{}\n0\n\n"), "2.2", why="a line feed alone may end a line of a head, not of a chunk"
    ),
    "a bare line feed behind a size": Entry(
        _chunks(b"2\n{}\r\n0\r\n\r\n" + HIDDEN), "2.2", why="a line feed alone may end a line of a head, not of a chunk"
    ),
    "a bare line feed behind a chunk": Entry(_chunks(b"2\r\n{}\n0\r\n\r\n"), "2.2", why="the same"),
    "bare line feeds at the end": Entry(_chunks(b"2\r\n{}\r\n0\n\n"), "2.2", why="the same"),
    "a bare carriage return behind a size": Entry(_chunks(b"2\r{}\r\n0\r\n\r\n"), "2.2"),
}

LINES = {
    "bare line feeds for all line ends": Entry(
        raw("content-length: 2", body=b"{}").replace(b"\r\n", b"\n"),
        "2.2",
        why="a MAY that is not taken: parsers behind may not take it either",
    ),
    "a bare line feed between fields": Entry(
        raw("x-a: 1\nx-b: 2", "content-length: 2", body=b"{}"), "2.2", why="the same"
    ),
    "a bare carriage return between fields": Entry(
        raw("x-a: 1\rtransfer-encoding: chunked", "content-length: 2", body=b"{}"), "2.2"
    ),
    "a folded value": Entry(raw("x-a: one", " two", "content-length: 2", body=b"{}"), "5.2"),
    "a space in front of the first field": Entry(
        raw("content-length: 2", body=b"{}", host=" x-a: 1\r\nhost: x"), "2.2"
    ),
    "a null byte in a value": Entry(raw("x-a: 1\x002", "content-length: 2", body=b"{}"), "5.5 of 9110"),
    "a control character in a value": Entry(
        raw("x-a: \x1b[31m", "content-length: 2", body=b"{}"),
        "5.5 of 9110",
        why="invalid, and it would reach terminals through logs",
    ),
    "bytes above ASCII in a value": Entry(raw("x-a: \xe4\xff", "content-length: 2", body=b"{}"), "5.5 of 9110"),
    "a null byte in a name": Entry(raw("x\x00y: 1", "content-length: 2", body=b"{}"), "5.1"),
    "a space in a name": Entry(raw("x y: 1", "content-length: 2", body=b"{}"), "5.1"),
    "a space before a colon": Entry(raw("x-a : 1", "content-length: 2", body=b"{}"), "5.1"),
    "bytes above ASCII in a name": Entry(
        raw("x-\xe4: 1", "content-length: 2", body=b"{}"), "5.1", why="a name is a token"
    ),
    "an empty name": Entry(raw(": 1", "content-length: 2", body=b"{}"), "5.1"),
    "a line without a colon": Entry(raw("no colon here", "content-length: 2", body=b"{}"), "5"),
    "empty lines in front": Entry(b"\r\n\r\n" + raw("content-length: 2", body=b"{}"), "2.2"),
    "a head of 70,000 bytes": Entry(
        raw("x-a: " + "y" * 70_000, "content-length: 2", body=b"{}"),
        "5.4 of 9110",
        why="above `--max-head-bytes`, said as RFC 6585 has it",
    ),
    "a field of 9,000 bytes": Entry(
        raw("x-a: " + "y" * 9_000, "content-length: 2", body=b"{}"),
        "5.4 of 9110",
        why="under `--max-head-bytes`; nginx has 8 kB for a field",
    ),
    "300 fields": Entry(
        raw(*(f"x-{number}: 1" for number in range(300)), "content-length: 2", body=b"{}"),
        "5.4 of 9110",
        why="256 at most: each costs work",
    ),
    "Connection names Content-Length": Entry(
        raw("connection: content-length", "content-length: 2", body=b"{}"), "7.6.1 of 9110"
    ),
    "an upgrade to h2c": Entry(
        raw("connection: upgrade", "upgrade: h2c", "http2-settings: AA", "content-length: 2", body=b"{}"), "7.8 of 9110"
    ),
    "an upgrade, and a coding": Entry(
        raw("connection: upgrade", "upgrade: h2c", "transfer-encoding: gzip", body=_EMPTY + HIDDEN),
        "6.1",
        why="chunked is not last: 400 is a MUST",
    ),
}

FIRST_LINES = {
    "a whole URL": Entry(raw("content-length: 2", body=b"{}", first="POST http://x/v1/y HTTP/1.1"), "3.2.2"),
    "a whole URL of another host": Entry(
        raw("content-length: 2", body=b"{}", first="POST http://b/v1/y HTTP/1.1"), "3.2.2"
    ),
    "a URL with a user": Entry(
        raw("content-length: 2", body=b"{}", first="POST http://a:b@c:1/v1/y HTTP/1.1"), "4.2.4 of 9110"
    ),
    "a URL without a path": Entry(
        raw(first="GET http://x HTTP/1.1"), "3.2.2", why="its path is `/`, which is none for engines"
    ),
    "an authority (CONNECT)": Entry(raw(body=HIDDEN, first="CONNECT 127.0.0.1:22 HTTP/1.1"), "3.2.3"),
    "an asterisk": Entry(raw(first="OPTIONS * HTTP/1.1"), "3.2.4"),
    "no host": Entry(raw("content-length: 2", body=b"{}", host=""), "3.2"),
    "two hosts": Entry(raw("host: y", "content-length: 2", body=b"{}"), "3.2"),
    "the same host twice": Entry(raw("host: x", "content-length: 2", body=b"{}"), "3.2"),
    "an empty host": Entry(
        raw("content-length: 2", body=b"{}", host="host:"), "3.2", why="valid, where a target has no authority"
    ),
    "an IPv6 host": Entry(raw("content-length: 2", body=b"{}", host="host: [fe80::1%25eth0]:8000"), "3.2"),
    "a host with an underscore": Entry(raw("content-length: 2", body=b"{}", host="host: my_router.x:80"), "3.2"),
    "a host with a path": Entry(raw("content-length: 2", body=b"{}", host="host: x/y"), "3.2"),
    "a host with a user": Entry(raw("content-length: 2", body=b"{}", host="host: a@x"), "3.2", why="no host"),
    "a host with a space": Entry(raw("content-length: 2", body=b"{}", host="host: x y"), "3.2"),
    "a port that is no number": Entry(raw("content-length: 2", body=b"{}", host="host: x:8o"), "3.2", why="no port"),
    "two spaces between the parts": Entry(raw("content-length: 2", body=b"{}", first=f"POST  {CHAT}  HTTP/1.1"), "3"),
    "a tab between the parts": Entry(raw("content-length: 2", body=b"{}", first=f"POST\t{CHAT} HTTP/1.1"), "3"),
    "a space in the target": Entry(raw("content-length: 2", body=b"{}", first="POST /v1/a b HTTP/1.1"), "3.2"),
    "a null byte in the target": Entry(raw("content-length: 2", body=b"{}", first="POST /v1/a\x00b HTTP/1.1"), "3.2"),
    "bytes above ASCII in the target": Entry(
        raw("content-length: 2", body=b"{}", first="POST /v1/\xe4 HTTP/1.1"),
        "3.2",
        why="invalid; nginx passes it on, and this engine refuses",
    ),
    "a fragment": Entry(
        raw("content-length: 2", body=b"{}", first="POST /v1/y#z HTTP/1.1"),
        "3.2",
        why="putting it right is a SHOULD NOT",
    ),
    "dots that climb out": Entry(
        raw("content-length: 2", body=b"{}", first="POST /v1/../sleep HTTP/1.1"),
        "3.2",
        why="administration is not for clients",
    ),
    "a target of 9,000 bytes": Entry(
        raw("content-length: 2", body=b"{}", first=f"POST /v1/{'y' * 9_000} HTTP/1.1"), "3"
    ),
    "a folded first line": Entry(f"POST\r\n {CHAT} HTTP/1.1\r\nhost: x\r\n\r\n".encode(), "3"),
    "a method that is none": Entry(raw(first=f"P@ST {CHAT} HTTP/1.1"), "9.1 of 9110"),
    "a method in small letters": Entry(
        raw("content-length: 2", body=b"{}", first=f"post {CHAT} HTTP/1.1"), "9.1 of 9110"
    ),
    "no version (HTTP/0.9)": Entry(
        f"GET {CHAT}\r\n\r\n".encode(), "2.3", why="an answer without a head is none that HTTP/1.1 knows"
    ),
    "HTTP/0.9 by name": Entry(raw(first=f"GET {CHAT} HTTP/0.9"), "2.3"),
    "HTTP/1.2": Entry(
        raw("content-length: 2", body=b"{}", first=f"POST {CHAT} HTTP/1.2"),
        "2.3",
        why="there is none; reading it as 1.1 is a SHOULD (2.5 of 9110)",
    ),
    "HTTP/1.10": Entry(
        raw("content-length: 2", body=b"{}", first=f"POST {CHAT} HTTP/1.10"), "2.3", why="a version is two digits"
    ),
    "HTTP/2.0": Entry(raw(first=f"GET {CHAT} HTTP/2.0"), "2.3", why="not on this port; no 5xx for what a client did"),
    "http/1.1 in small letters": Entry(raw(first=f"GET {CHAT} http/1.1"), "2.3"),
    "HTTP/2's preface": Entry(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "2.3"),
    "TLS": Entry(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300), "2.2"),
}

CORPUS: dict[str, dict[str, Entry]] = {
    "Lengths and codings": LENGTHS_AND_CODINGS,
    "Lengths": LENGTHS,
    "Chunks": CHUNKS,
    "Lines and fields": LINES,
    "First lines and hosts": FIRST_LINES,
}
"""By the heading of their table in docs/reference/http.md."""
