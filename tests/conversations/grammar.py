"""Requests and answers made by HTTP's grammar, and damaged since: hypothesis makes them, and makes them small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.conversations.table import ANSWERS, REQUESTS, Sent
from tests.conversations.talking import cut

Draw = Callable[[st.SearchStrategy[Any]], Any]

_TOKEN = st.text("abcdefgXYZ0123456789-_!#$%&'*+.^`|~", min_size=1, max_size=8).map(str.encode)
_NAMES = st.one_of(
    st.sampled_from([b"X-A", b"x-b", b"Accept", b"Cookie", b"X-Session-Id", b"User-Agent", b"Authorization", b"Date"]),
    _TOKEN.map(lambda token: b"x-" + token),
)
_VALUES = st.one_of(
    st.sampled_from([b"", b"1", b"a, b", b'"quoted: \\" "', b"chunked", b"close", b"2", b"\xff\x80"]),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20).map(str.encode),
)
_SPACE = st.sampled_from([b" ", b"", b"\t", b"  "])
_BODIES = st.one_of(
    st.sampled_from([b"", b"{}", b'{"model":"m","messages":[]}', b"0\r\n\r\n", b"\r\n", b"GET /v1/x HTTP/1.1\r\n\r\n"]),
    st.binary(max_size=60),
)
_EXTENSIONS = st.sampled_from([b"", b"", b"", b";a", b";a=b", b';a="b c"', b";a;b;c"])
_METHODS = st.sampled_from([b"POST", b"POST", b"GET", b"HEAD", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"])
_TARGETS = st.sampled_from([
    b"/v1/chat/completions", b"/v1/chat/completions", b"/v1/x?a=b&c=%20", b"/v1/a/b/c", b"/tokenize",
    b"http://b.test/v1/x?y", b"/livez", b"/v1/x/../y",
])  # fmt: skip
_CONNECTIONS = st.sampled_from([[], [], [], [b"Connection: close"], [b"Connection: keep-alive"], [b"Connection: x-a"]])
_STATUSES = st.sampled_from([200, 200, 200, 201, 204, 304, 400, 404, 500, 299, 599])
_EXPECTED = st.sampled_from([[], [], [b"Expect: 100-continue"]])
_TYPES = st.sampled_from([[], [b"Content-Type: application/json"], [b"Content-Type: text/event-stream"]])
_INTERIM = st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"])


@st.composite
def _fields(draw: Draw) -> list[bytes]:
    count = draw(st.integers(0, 3))
    return [b"%b:%b%b%b" % (draw(_NAMES), draw(_SPACE), draw(_VALUES), draw(_SPACE)) for _ in range(count)]


@st.composite
def _chunked(draw: Draw, body: bytes) -> bytes:
    places = draw(st.lists(st.integers(1, max(1, len(body) - 1)), max_size=3)) if len(body) > 1 else []
    zeros = draw(st.sampled_from([b"", b"", b"00"]))
    chunks = [b"%b%x%b\r\n%b\r\n" % (zeros, len(part), draw(_EXTENSIONS), part) for part in cut(body, *places)]
    trailers = [field + b"\r\n" for field in draw(_fields())] if draw(st.integers(0, 4)) == 0 else []
    return b"".join([*chunks, b"0", draw(_EXTENSIONS), b"\r\n", *trailers, b"\r\n"])


@st.composite
def _framed(draw: Draw, ways: list[str]) -> tuple[list[bytes], bytes]:
    """A body: the lines that frame it, and its bytes."""
    body, way = draw(_BODIES), draw(st.sampled_from(ways))
    if way == "sized":
        return [b"Content-Length: %d" % len(body)], body
    if way == "chunked":
        return [b"Transfer-Encoding: chunked"], draw(_chunked(body))
    return [], body if way == "until close" else b""


@st.composite
def whole_requests(draw: Draw) -> bytes:
    """A request that is as it should be."""
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0"]))
    framing, body = draw(_framed(["none", "sized"] + (["chunked"] if version == b"1.1" else [])))
    first = b"%b %b HTTP/%b" % (draw(_METHODS), draw(_TARGETS), version)
    lines = draw(st.permutations([b"Host: a.test", *draw(_fields()), *draw(_CONNECTIONS), *draw(_EXPECTED), *framing]))
    return b"\r\n".join([first, *lines, b"", b""]) + body


@st.composite
def whole_answers(draw: Draw) -> bytes:
    """An answer that is as it should be; the connection ends behind it."""
    status = draw(_STATUSES)
    ways = ["none"] if status in (204, 304) else ["sized", "chunked", "until close"]
    framing, body = draw(_framed(ways))
    first = b"HTTP/1.1 %d %b" % (status, draw(_VALUES))
    lines = draw(st.permutations([*draw(_fields()), *draw(_TYPES), *draw(_CONNECTIONS), *framing]))
    return draw(_INTERIM) + b"\r\n".join([first, *lines, b"", b""]) + body


_PUT_IN = st.one_of(
    st.sampled_from([
        b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b"\r\n\r\n", b"\xff", b"\x0b", b"\x7f", b",", b";", b"+",
        b"0x", b"0", b"1", b"chunked", b"identity", b"gzip, ", b"0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"_", b"#",
        b"Content-Length: 5\r\n", b"\r\nContent-Length: 0", b"Transfer-Encoding: chunked\r\n", b"\r\nHost: b", b"\\",
        b"\r\nTransfer-Encoding: identity", b"\r\nContent-Length: +2", b"\r\nTransfer-Encoding : chunked", b"\r\n\t",
        b"GET /v1/x HTTP/1.1\r\nHost: c\r\n\r\n", b"\r\nUpgrade: h2c\r\nConnection: upgrade", b"0" * 20, b"f" * 17,
    ]),
    st.binary(min_size=1, max_size=3),
)  # fmt: skip


@st.composite
def _damaged(draw: Draw, data: bytes) -> bytes:
    """The same with something put in, taken out, doubled or written over; sometimes where a line ends."""
    for _ in range(draw(st.integers(0, 3))):
        ends = [at for at in range(len(data)) if data[at : at + 2] == b"\r\n"]
        places = st.integers(0, len(data)) | st.sampled_from(ends) if ends else st.integers(0, len(data))
        at, length = draw(places), draw(st.integers(0, 12))
        way = draw(st.sampled_from(["put in", "put in", "take out", "double", "write over"]))
        if way == "put in":
            data = data[:at] + draw(_PUT_IN) + data[at:]
        elif way == "take out":
            data = data[:at] + data[at + length :]
        elif way == "double":
            data = data[: at + length] + data[at:]
        else:
            data = data[:at] + draw(_PUT_IN) + data[at + length :]
    return data


@st.composite
def _pieces(draw: Draw, data: bytes) -> list[bytes]:
    return cut(data, *draw(st.lists(st.integers(0, len(data)), max_size=4)))


@st.composite
def requests(draw: Draw) -> list[bytes]:
    """What a client sends, in pieces: one to three requests, damaged or not."""
    known = st.sampled_from(list(REQUESTS.values()))
    parts = draw(st.lists(whole_requests() | known, min_size=1, max_size=3))
    return draw(_pieces(draw(_damaged(b"".join(parts)))))


@dataclass(frozen=True)
class Told:
    """An engine's answer: the method that was asked with, its bytes in pieces, and whether it is as it should be."""

    method: bytes
    pieces: list[bytes]
    whole: bool


_KNOWN_ANSWERS = [sent for name, sent in ANSWERS.items() if name != "pushed back"]
"""A replica that pushes back gets nothing for a while, and the next conversation would wait for it."""


@st.composite
def answers(draw: Draw) -> Told:
    """What an engine answers, in pieces, damaged or not."""
    sent = draw(whole_answers().map(Sent) | st.sampled_from(_KNOWN_ANSWERS))
    method = draw(st.sampled_from([sent.method, sent.method, sent.method, b"HEAD"]))
    data = draw(_damaged(sent.data))
    return Told(method, draw(_pieces(data)), whole=data == sent.data and method == sent.method)
