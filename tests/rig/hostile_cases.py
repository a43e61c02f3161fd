"""Requests that no honest client sends, made from a seed: broken heads, lying framing, bodies of every wrong kind.

Each can be made again from its seed and number alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.rig.client import CHAT, chat, chunked, request

PATHS = [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/models", "/tokenize"]
ODD_PATHS = [
    "/", "*", "//", "/v1", "/v1/../sleep", "/v1/%2e%2e/x", "/v1/\\..\\x", "/v1/x?" + "y" * 9000, "a:1",
    "http://a/v1/x",
]  # fmt: skip
METHODS = ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "PROPFIND", "BREW", "get", ""]
FIELDS = [
    "model", "messages", "prompt", "input", "stream", "max_tokens", "tools", "tool_choice", "cache_salt", "n", "stop",
    "previous_response_id", "system", "instructions", "priority", "stream_options", "lora", "logprobs", "user",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 1e308, -1e308, 10**40, 0.1, "", "x", "\u0000", "\ud83d\ude00", [], {}, [[]], [None], [{}],
    {"": ""}, {"role": None}, [{"role": 1, "content": {}}], [{"role": "user", "content": [{"type": "image_url"}]}],
    [{"role": "user", "content": [{"type": "text", "text": 5}]}], "x" * 5000, [1, "a", None], [[1, 2], ["a"]],
]  # fmt: skip
TYPES = ["", "text/plain", "application/xml", "multipart/form-data", "application/json; charset=utf-16", "\t", "a/b/c"]


@dataclass(frozen=True)
class Case:
    """What is sent, in pieces, and how the client ends: wait for an answer, close, reset, or half (write no more)."""

    kind: str
    pieces: list[bytes]
    end: str = "wait"


def _head(*lines: bytes, method: bytes = b"POST", target: str = CHAT) -> bytes:
    return b"\r\n".join([b"%b %b HTTP/1.1" % (method, target.encode("latin-1")), b"host: x", *lines, b"", b""])


def _whole(chance: Random) -> bytes:
    text = chance.choice(["hi", "some words " * 30])
    return chat(text, stream=chance.random() < 0.5, max_tokens=chance.randint(1, 8))


def damaged(chance: Random) -> Case:
    """A good request with bytes flipped, cut, doubled."""
    data = bytearray(_whole(chance))
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(data))
        way = chance.randrange(4)
        if way == 0:
            data[at] = chance.randrange(256)
        elif way == 1 and len(data) > 40:
            del data[at : at + chance.randint(1, 20)]
        elif way == 2:
            data[at:at] = data[at : at + chance.randint(1, 40)]
        else:
            data[at:at] = chance.choice([b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\r\n\r\n", b"\xff"])
    return Case("damaged", [bytes(data)])


def garbage(chance: Random) -> Case:
    """Bytes of something else."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    starts = [b"", b"\x16\x03\x01\x02\x00", preface, b"SSH-2.0-x\r\n", b"\r\n" * 50, b"GET /\r\n"]
    return Case("garbage", [chance.choice(starts) + chance.randbytes(chance.randint(0, 300)) + b"\r\n\r\n"])


LENGTHS = [
    "-1", "+2", "0x2", "2, 2", "2,3", "", "2 3", "9" * 30, "1e3", "\x0b2", "two", "18446744073709551617", "0002", "2;",
]  # fmt: skip
CODINGS = [
    "chunked", "xchunked", "chunked, identity", "gzip, chunked", "identity", "chunked;a=b", '"chunked"', "CHUNKED",
    "chunked,", " chunked", "\tchunked", "chunked\x0b", "cow", "",
]  # fmt: skip
CHUNKS = [
    b"zz\r\n{}\r\n0\r\n\r\n", b"-2\r\n{}\r\n0\r\n\r\n", b"fffffffffffffffff\r\n{}", b"0x2\r\n{}\r\n0\r\n\r\n",
    b"2\n{}\n0\n\n", b"2;a=b;c\r\n{}\r\n0\r\n\r\n", b"2;\"a\r\n\"\r\n{}\r\n0\r\n\r\n", b"2\r\n{}}\r\n0\r\n\r\n",
    b"1\r\n{}\r\n0\r\n\r\n", b"2 \r\n{}\r\n0\r\n\r\n", b"\r\n", b"0\r\nx: y\r\n\r\n", b"0\r\ncontent-length: 5\r\n\r\n",
    b"2\r\n{}\r\n0\r\n x: y\r\n\r\n", b"0" * 90 + b"2\r\n{}\r\n0\r\n\r\n",
    b"2;" + b"e" * 90_000 + b"\r\n{}\r\n0\r\n\r\n",
]  # fmt: skip
HIDDEN = b"POST /sleep HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


def framing(chance: Random) -> Case:
    """Lengths and codings that contradict each other or themselves, with a request hidden behind."""
    lines = [b"content-length: " + value.encode("latin-1") for value in chance.sample(LENGTHS, chance.randint(0, 2))]
    lines += [b"transfer-encoding: " + value.encode() for value in chance.sample(CODINGS, chance.randint(0, 2))]
    others = [b"content-length : 2", b"content-length: 2", b"connection: upgrade\r\nupgrade: h2c", b"x-a: b"]
    lines += chance.sample(others, chance.randint(0, 2))
    chance.shuffle(lines)
    return Case("framing", [_head(*lines) + chance.choice(CHUNKS) + chance.choice([b"", HIDDEN])])


def head(chance: Random) -> Case:
    """Heads that are folded, endless, many, or have what does not belong there."""
    lines = chance.choice([
        [b"x-a: one\r\n two"], [b"x-a: 1\nx-b: 2"], [b"x-a: 1\rx-b: 2"], [b": 1"], [b"no colon"], [b"x a: 1"],
        [b"x-a: \0"], [b"x-a: \x1b[2J"], [b"x-a: " + b"y" * 70_000], [b"x-%d: 1" % number for number in range(400)],
        [b"connection: " + b"host, content-length, authorization, " * 50], [b"host: y", b"host: z"], [b"\xc3\xa9: 1"],
        [b"expect: 100-continue", b"content-length: 5"], [b"expect: 200-maybe"], [b"x-request-id: " + b"z" * 9000],
        [b"x-request-id: a\tb"], [b"x-session-id: " + chance.randbytes(20).replace(b"\n", b"").replace(b"\r", b"")],
        [b"authorization: Bearer a", b"authorization: Bearer b", b"x-api-key: c"], [b"te: trailers, deflate;q=0.5"],
        [b"x-warmroute-priority: \xff"], [b"x-forwarded-for: " + b"1.1.1.1, " * 500], [b"forwarded: for=\"[::1"],
        [b"origin: \xff", b"access-control-request-method: X"], [b"upgrade: websocket", b"connection: upgrade"],
    ])  # fmt: skip
    sized = [b"content-length: 2"] if chance.random() < 0.6 else []
    return Case("head", [_head(*lines, *sized) + (b"{}" if sized else chance.choice([b"", b"{}", HIDDEN]))])


def first_line(chance: Random) -> Case:
    """Methods, targets and versions that are not to be."""
    method, target = chance.choice(METHODS), chance.choice(PATHS + ODD_PATHS)
    versions = ["HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.10", "http/1.1", "", "RTSP/1.0"]
    version = chance.choice(versions)
    line = chance.choice([" ", " ", "  ", "\t"]).join([method, target, version])
    body = chance.choice(["", "content-length: 2\r\n"])
    return Case("first line", [f"{line}\r\nhost: x\r\n{body}\r\n{{}}".encode("latin-1")])


def _json(chance: Random, path: str) -> bytes:
    good: dict[str, Any] = {"model": "sim-model", "max_tokens": 4}
    good |= {"prompt": "hi"} if path == "/v1/completions" else {"input": "hi"} if "res" in path or "emb" in path else {}
    if path in (CHAT, "/v1/messages"):
        good["messages"] = [{"role": "user", "content": "hi"}]
    for name in chance.sample(FIELDS, chance.randint(1, 4)):
        good[name] = chance.choice(VALUES)
    return json.dumps(good).encode("utf-8", "surrogatepass")


def fields(chance: Random) -> Case:
    """JSON with values of every wrong type in every field."""
    path = chance.choice(PATHS)
    return Case("fields", [request(path, _json(chance, path))])


BODIES: list[Callable[[Random], bytes]] = [
    lambda _: b"",
    lambda chance: chance.randbytes(chance.randint(1, 2000)),
    lambda _: b"[" * 50_000,
    lambda _: b'{"messages":' * 5_000,
    lambda _: b'{"model":"' + b"x" * 100_000 + b'"}',
    lambda _: b'{"model":"sim-model","messages":[{"role":"user","content":"\xff\xfe\x80"}]}',
    lambda _: b'{"model":"sim-model","prompt":"\\ud800","messages":[{"role":"user","content":"\\udfff"}]}',
    lambda _: b'{"model":"a","model":"b","messages":[],"messages":1}',
    lambda _: b'{"max_tokens":' + b"9" * 5_000 + b"}",
    lambda _: b'{"messages":[{"role":"user","content":"hi"}],"model":NaN,"x":Infinity}',
    lambda _: b"null",
    lambda _: b'"text"',
    lambda _: b"1e999",
    lambda _: b'{"model":"sim-model"',
    lambda _: b"\xef\xbb\xbf{}",
    lambda _: "{}".encode("utf-16"),
    lambda _: b"--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\nx\r\n--b--\r\n",
    lambda chance: b'{"model":"sim-model","prompt":[' + b",".join([b"%d" % chance.randint(-9, 10**12)] * 500) + b"]}",
]


def body(chance: Random) -> Case:
    """Bodies that are no request, under types that are no JSON."""
    headers = [("content-type", chance.choice(TYPES))] if chance.random() < 0.5 else []
    data = chance.choice(BODIES)(chance)
    if chance.random() < 0.3:
        at = chance.randint(0, len(data))
        parts = [part for part in (data[:at], data[at:]) if part]
        sent = request(chance.choice(PATHS), chunked(*parts), headers=[*headers, ("transfer-encoding", "chunked")])
    else:
        sent = request(chance.choice(PATHS), data, headers=headers)
    return Case("body", [sent])


def early_end(chance: Random) -> Case:
    """A good request whose client leaves at any byte of it, or as it is answered."""
    data = _whole(chance)
    at = chance.randint(0, len(data))
    return Case("early end", [data[:at]], chance.choice(["close", "reset", "half"]))


def pieces(chance: Random) -> Case:
    """A good request in many reads, which may be cut within a line's end."""
    data = _whole(chance)
    cuts = sorted(chance.randint(0, len(data)) for _ in range(chance.randint(1, 12)))
    return Case("pieces", [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)])


def pipelined(chance: Random) -> Case:
    """Many at once, good ones and bad ones."""
    kinds = [damaged, framing, fields, body, first_line]
    parts = [_whole(chance) if chance.random() < 0.6 else chance.choice(kinds)(chance).pieces[0] for _ in range(6)]
    return Case("pipelined", [b"".join(parts)], chance.choice(["wait", "wait", "close", "reset"]))


KINDS = [damaged, garbage, framing, head, first_line, fields, body, early_end, pieces, pipelined]


def case(seed: int, number: int) -> Case:
    """Return one case; the same for the same seed and number."""
    return KINDS[number % len(KINDS)](Random(seed * 1_000_003 + number))


cases = st.builds(case, st.integers(0, 2**32), st.integers(0, len(KINDS) - 1))
"""For hypothesis, which then shrinks to the smallest seed of a kind."""
