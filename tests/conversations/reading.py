"""What a peer reads on the wire, by a parser that the router does not use: h11, pure Python, strict."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import h11

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""

_LARGEST_HEAD_BYTES = 1 << 20
"""So that it is the router's limit that is met, and not h11's."""


@dataclass
class Message:
    """One request or answer."""

    head: h11.Request | h11.Response
    body: bytes = b""
    trailers: Headers = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    """Statuses of the 1xx heads in front."""
    last: bool = False
    """Whether the connection ends with it, by what it says."""

    @property
    def headers(self) -> Headers:
        return list(self.head.headers)

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.head.headers if key == name]

    def value(self, name: bytes) -> bytes | None:
        """The one value of a header; several fail the test."""
        values = self.all(name)
        assert len(values) < 2, values
        return values[0] if values else None

    @property
    def method(self) -> bytes:
        assert isinstance(self.head, h11.Request)
        return self.head.method

    @property
    def target(self) -> bytes:
        assert isinstance(self.head, h11.Request)
        return self.head.target

    @property
    def status(self) -> int:
        assert isinstance(self.head, h11.Response)
        return self.head.status_code


class Reading:
    """Messages of one direction of a connection, as they come. `error`: why nothing more can be read."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.error: h11.RemoteProtocolError | None = None
        self._parser = self._fresh()
        self._begun: Message | None = None
        self._interim: list[int] = []

    def _fresh(self) -> h11.Connection:
        raise NotImplementedError

    @property
    def begun(self) -> bool:
        """Whether a message has come in part."""
        return self._begun is not None or bool(self._interim) or bool(self._parser.trailing_data[0])

    @property
    def begins_with_head(self) -> bool:
        """Whether what has come in part is a request with HEAD: whether an answer to that has a body can't be known."""
        return self._begun is not None and self._begun.method == b"HEAD"

    @property
    def over(self) -> bool:
        """Whether what comes from here on is no message."""
        return self.error is not None or bool(self.messages and self.messages[-1].last)

    def feed(self, data: bytes) -> None:
        """Take bytes in; b"" is the end of the connection, and no error where at most 1xx heads came before."""
        if self.over or not (data or self._begun or self._parser.trailing_data[0]):
            return
        self._parser.receive_data(data)
        try:
            while not self.over and self._next():
                pass
        except h11.RemoteProtocolError as error:
            self.error = error

    def _next(self) -> bool:
        event = self._parser.next_event()
        if isinstance(event, h11.InformationalResponse):
            self._interim.append(event.status_code)
        elif isinstance(event, h11.Request | h11.Response):
            self._begun, self._interim = Message(event, interim=self._interim), []
        elif isinstance(event, h11.Data) and self._begun is not None:
            self._begun.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage) and self._begun is not None:
            self._end(self._begun, list(event.headers))
        else:
            return False
        return True

    def _end(self, message: Message, trailers: Headers) -> None:
        message.trailers = trailers
        message.last = self._parser.their_state in (h11.MUST_CLOSE, h11.CLOSED)
        self.messages.append(message)
        self._begun = None
        self._next_parser(self._parser.trailing_data[0])

    def _next_parser(self, rest: bytes) -> None:
        self._parser = self._fresh()
        if rest:
            self._parser.receive_data(rest)


_LOOSE_LINE = re.compile(rb"^([!-~]+) +([!-~]+) +(HTTP/1\.[01]\r\n)")


class Requests(Reading):
    """Reads as a server does.

    `leniently`: with what h11 refuses and RFC 9112 asks for or allows: empty lines in front of a request (section 2.2),
    and several spaces in its first line (section 3).
    """

    def __init__(self, *, leniently: bool = False) -> None:
        self._leniently = leniently
        super().__init__()

    def _strictly(self, data: bytes) -> bytes:
        return _LOOSE_LINE.sub(rb"\1 \2 \3", data.lstrip(b"\r\n"), count=1) if self._leniently else data

    def feed(self, data: bytes) -> None:
        super().feed(data if self.begun else self._strictly(data))

    def _next_parser(self, rest: bytes) -> None:
        super()._next_parser(self._strictly(rest))

    def _fresh(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD_BYTES)


class Answers(Reading):
    """Reads as the client does that has sent requests with these methods; GET where they are used up."""

    def __init__(self, *methods: bytes) -> None:
        self._methods = iter(methods)
        super().__init__()

    def _fresh(self) -> h11.Connection:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LARGEST_HEAD_BYTES)
        parser.send(h11.Request(method=next(self._methods, b"GET"), target="/", headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        return parser


def requests_in(data: bytes) -> Requests:
    """All that h11 reads in these bytes."""
    reading = Requests(leniently=True)
    reading.feed(data)
    return reading


def answer_in(data: bytes, method: bytes = b"GET", *, ended: bool) -> Message:
    """The one answer that h11 reads in these bytes; `ended`: the connection ends behind it."""
    reading = Answers(method)
    reading.feed(data)
    if ended:
        reading.feed(b"")
    assert reading.error is None, reading.error
    (message,) = reading.messages
    return message


# What must be the same behind the router: RFC 9110 section 7.6.1, and docs/reference/headers.md

_OF_ONE_CONNECTION = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
}  # fmt: skip
_WRITTEN_ANEW = {b"content-length", b"x-request-id"}
_REQUESTS_OWN = _OF_ONE_CONNECTION | _WRITTEN_ANEW | {
    b"host", b"expect", b"forwarded", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host",
    b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-server", b"x-forwarded-ssl", b"x-real-ip",
}  # fmt: skip
_ANSWERS_OWN = _OF_ONE_CONNECTION | _WRITTEN_ANEW
_OWN_PREFIX = b"x-warmroute-"


def _end_to_end(message: Message, own: set[bytes]) -> Headers:
    named = {name.strip().lower() for value in message.all(b"connection") for name in value.split(b",")}
    return [(name, value) for name, value in message.headers if name not in own and name not in named]


def origin_form(target: bytes) -> bytes:
    """A target without scheme and authority, as an origin server is sent it (RFC 9112 section 3.2.1)."""
    return re.sub(rb"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*", b"", target)


def check_request(sent: Message, seen: Message, authority: bytes) -> None:
    """What the engine reads is what the client sent."""
    assert seen.method == sent.method
    assert seen.target == origin_form(sent.target)
    assert seen.body == sent.body
    assert _end_to_end(seen, _REQUESTS_OWN) == _end_to_end(sent, _REQUESTS_OWN)
    assert seen.head.http_version == b"1.1"
    assert seen.all(b"host") == [authority]
    has_body = bool(sent.all(b"content-length") or sent.all(b"transfer-encoding"))
    assert seen.all(b"content-length") == ([b"%d" % len(sent.body)] if has_body else [])
    for name in (*_OF_ONE_CONNECTION, b"expect"):
        assert seen.all(name) == [], name
    assert not seen.trailers


def check_answer(sent: Message, got: Message, *, http_1_0: bool = False) -> None:
    """What the client reads is what the engine answered."""
    assert got.status == sent.status
    assert got.body == sent.body
    others = [(name, value) for name, value in _end_to_end(got, _ANSWERS_OWN) if not name.startswith(_OWN_PREFIX)]
    assert others == [pair for pair in _end_to_end(sent, _ANSWERS_OWN) if not pair[0].startswith(_OWN_PREFIX)]
    assert got.value(b"x-warmroute-replica") is not None
    assert set(got.interim) <= {100}, "the engine's stay behind; to Expect the router says its own"
    if http_1_0:
        assert got.all(b"transfer-encoding") == []
    elif sent.all(b"transfer-encoding"):
        assert got.trailers == sent.trailers


OWN_ERRORS = {400, 408, 413, 414, 431, 502, 503, 504}
"""What the router itself may answer where it can't pass something on."""


def check_refusal(got: Message, *, statuses: set[int] = OWN_ERRORS) -> None:
    """An error of the router's own, whole and in its form."""
    assert got.value(b"x-warmroute-replica") is None
    assert got.status in statuses, got.status
    assert got.value(b"content-type") == b"application/json"
    assert got.body.startswith(b'{"error":{"message":"')
