"""Honest requests and their answers, made from a number: both ends of a conversation make the same ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.rig.client import chunked

Lines = list[tuple[str, str]]

_TOKEN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789!#$%&'*+-.^_`|~"
_VALUE = "".join(map(chr, [*range(0x21, 0x7F), *range(0xA1, 0x100)]))
_QUERY = "abcXYZ0189-._~!$&'()*+,;=:@/?%"
_PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/files/x", "/v1/a/b/c", "/tokenize", "/inference/v1/generate"]
_METHODS = ["POST", "POST", "POST", "GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]
_STATUSES = [200, 200, 200, 200, 201, 202, 207, 299, 400, 401, 404, 409, 422, 500, 501, 511, 599, 204, 304]
_TYPES = ["application/json", "text/event-stream", "text/event-stream; charset=utf-8", "audio/wav"]


@dataclass
class Sent:
    """One message as it is sent, and what of it must arrive."""

    first: str
    lines: Lines
    """End-to-end headers, in order, values without spaces around them."""
    body: bytes
    data: bytes
    """All of it, framed."""
    cuts: list[int]
    closes: bool = False
    trailers: Lines = field(default_factory=list)

    @property
    def pieces(self) -> list[bytes]:
        places = [0, *self.cuts, len(self.data)]
        return [self.data[a:b] for a, b in zip(places, places[1:], strict=False) if a < b]


def _word(chance: Random, letters: str, most: int) -> str:
    return "".join(chance.choices(letters, k=chance.randint(1, most)))


def _lines(chance: Random, number: int) -> Lines:
    made = [(f"x-{_word(chance, _TOKEN, 12)}", _word(chance, _VALUE, 40)) for _ in range(chance.randint(0, 5))]
    if made and chance.random() < 0.2:
        made.append((made[0][0], ""))  # the same name again, with an empty value
    made.insert(chance.randint(0, len(made)), ("x-mark", str(number)))
    return made


def _body(chance: Random) -> bytes:
    roll = chance.random()
    if roll < 0.15:
        return b""
    if roll < 0.3:
        return chance.choice([b"0\r\n\r\n", b"\r\n\r\n", b"{}", b"HTTP/1.1 200 OK\r\n\r\n", b"data: [DONE]\n\n", b"\0"])
    if roll < 0.97:
        return chance.randbytes(chance.randint(1, 1_500))
    return chance.randbytes(chance.randint(10_000, 300_000 if roll < 0.999 else 3_000_000))


def _chunks(chance: Random, body: bytes, end: bytes) -> bytes:
    places = sorted({0, len(body), *(chance.randint(0, len(body)) for _ in range(chance.randint(0, 8)))})
    return chunked(*(body[a:b] for a, b in zip(places, places[1:], strict=False)), last=end)


def _spaced(chance: Random, lines: Lines) -> list[str]:
    """Names in any case, values with any space around."""
    spaces = ["", " ", " ", "\t", "  "]
    return [
        f"{name.title() if chance.random() < 0.3 else name}:{chance.choice(spaces)}{value}{chance.choice(spaces)}"
        for name, value in lines
    ]


def _cuts(chance: Random, length: int) -> list[int]:
    roll = chance.random()
    if roll < 0.5:
        return []
    return sorted(chance.randrange(length) for _ in range(chance.randint(1, 6 if roll < 0.98 else 60)))


def _joined(chance: Random, first: str, lines: Lines, framing: Lines, body: bytes) -> bytes:
    spaced = _spaced(chance, lines)
    for line in _spaced(chance, framing):
        spaced.insert(chance.randint(0, len(spaced)), line.rstrip("\t"))  # llhttp knows no tab behind a coding
    return "\r\n".join([first, *spaced, "", ""]).encode("latin-1") + body


def request_of(seed: int, number: int) -> Sent:
    """The request of a number; the same for the same seed and number."""
    chance = Random(seed * 1_000_003 + number * 2)
    method, lines = chance.choice(_METHODS), _lines(chance, number)
    query = f"?{_word(chance, _QUERY, 30)}" if chance.random() < 0.3 else ""
    target, body, framing = chance.choice(_PATHS) + query, _body(chance), chance.random()
    others = [("host", "a.test")]
    if chance.random() < 0.1:
        others.append(("expect", "100-continue"))
    framed = body
    if framing < 0.4:
        others.append(("transfer-encoding", "chunked"))
        framed = _chunks(chance, body, chance.choice([b"0\r\n\r\n", b"0\r\nx-t: 1\r\n\r\n", b"000;a=b\r\n\r\n"]))
    elif body or framing < 0.7:
        others.append(("content-length", str(len(body))))
    closes = chance.random() < 0.03
    if closes:
        others.append(("connection", "close"))
    data = _joined(chance, f"{method} {target} HTTP/1.1", lines, others, framed)
    return Sent(f"{method} {target}", lines, body, data, _cuts(chance, len(data)), closes)


def answer_of(seed: int, number: int, method: str) -> Sent:
    """The answer to the request of a number."""
    chance = Random(seed * 1_000_003 + number * 2 + 1)
    status, lines, body = chance.choice(_STATUSES), _lines(chance, number), _body(chance)
    lines.append(("content-type", chance.choice(_TYPES)))
    if status in (204, 304) or method == "HEAD":
        body = b""
    framing, closes, trailers, framed, others = chance.random(), chance.random() < 0.05, [], body, []
    if status == 204:
        pass
    elif framing < 0.45:
        others.append(("transfer-encoding", "chunked"))
        trailers = [("x-t", "1")] if chance.random() < 0.1 and status != 304 and method != "HEAD" else []
        framed = _chunks(chance, body, b"0\r\nx-t: 1\r\n\r\n" if trailers else b"0\r\n\r\n")
    elif framing < 0.9 or status == 304 or method == "HEAD":
        others.append(("content-length", str(len(body))))
    else:
        closes = True
    if status == 304 or method == "HEAD":
        framed = b""
    if closes and others and chance.random() < 0.5:
        others.append(("connection", "close"))
    data = _joined(chance, f"HTTP/1.1 {status} Words", lines, others, framed)
    if chance.random() < 0.05:
        data = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + data
    return Sent(str(status), lines, body, data, _cuts(chance, len(data)), closes, trailers)
