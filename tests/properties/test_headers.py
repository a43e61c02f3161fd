"""Whatever heads come in: what speaks of one connection never goes on, everything else does, in its order."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st

from router.proxy.headers import CREDENTIALS, DROPPED, HOP_BY_HOP, KEPT, OWN_PREFIX, Headers, answer_head, request_head

# Written out, and not taken from the code: RFC 9110 section 7.6.1, RFC 9112 section 7, and what proxies made up.
OF_ONE_CONNECTION = [
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
    b"trailer", b"transfer-encoding", b"upgrade",
]  # fmt: skip
WRITTEN_ANEW = [b"host", b"content-length", b"expect", b"x-request-id"]
WAY = [b"x-forwarded-for", b"forwarded", b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port",
       b"x-forwarded-prefix", b"x-forwarded-server", b"x-forwarded-ssl", b"x-real-ip"]  # fmt: skip
ALWAYS_ANEW = [b"x-forwarded-for", b"forwarded"]
"""Of these, what is written anew even for a proxy that is trusted."""
PROTECTED = [b"authorization", b"x-api-key", b"api-key", b"cookie", b"set-cookie", b"cache-control", b"content-type",
             b"content-encoding", b"accept", b"vary"]  # fmt: skip
ORDINARY = [b"user-agent", b"x-session-id", b"accept-language", b"x-a", b"x-b", b"etag", b"date", b"server"]
RANK = b"x-data-parallel-rank"

names = st.sampled_from([*OF_ONE_CONNECTION, *WRITTEN_ANEW, *WAY, *PROTECTED, *ORDINARY, RANK])
values = st.sampled_from([b"", b"1", b"a, b", b"close", b"chunked", b"text/plain; q=0.5", b"\xe4\xfc", b"x: y"])
options = st.sampled_from([*OF_ONE_CONNECTION, *PROTECTED, *ORDINARY, b"close", b"X-A", b"", b" x-b ", b"\tX-Etag"])
connections = st.lists(options, max_size=4).map(lambda said: (b"connection", b",".join(said)))
heads = st.lists(st.tuples(names, values) | connections, max_size=12)


def said_of_connection(headers: Headers) -> set[bytes]:
    """Return what the Connection fields name that is not protected against being named there."""
    words = b",".join(value for name, value in headers if name == b"connection").split(b",")
    return {word.strip().lower() for word in words} - {*PROTECTED, *WAY, b"x-request-id"}


def parsed(head: bytes) -> tuple[bytes, Headers]:
    """Return first line and fields. Each line ends with CR LF and has no other; an empty one ends the head."""
    assert head.endswith(b"\r\n\r\n")
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = [line.split(b": ", 1) for line in lines]
    return first, [(name, value) for name, value in fields]


def without(headers: Headers, *gone: bytes) -> Headers:
    named = said_of_connection(headers)
    return [(name, value) for name, value in headers if name not in gone and name not in named]


@given(heads, st.booleans(), st.booleans(), st.booleans(), st.none() | st.integers(0, 1 << 40))
def test_of_a_request_goes_on_what_is_for_its_last_recipient(
    headers: Headers, keys: bool, rank: bool, trusted: bool, body_bytes: int | None
) -> None:
    dropped = DROPPED[keys, rank, trusted]
    head = request_head(b"POST", b"/v1/x", headers, b"gpu:1", b"id-1", body_bytes, b"x-own: 1\r\n", dropped)
    first, fields = parsed(head)
    gone = {*OF_ONE_CONNECTION, *WRITTEN_ANEW, *(ALWAYS_ANEW if trusted else WAY)}
    gone |= {b"authorization", b"x-api-key", b"api-key"} if keys else set()
    gone |= {RANK} if rank else set()
    length = [] if body_bytes is None else [(b"content-length", b"%d" % body_bytes)]
    own = [(b"x-own", b"1"), *length, (b"x-request-id", b"id-1")]
    assert first == b"POST /v1/x HTTP/1.1"
    assert fields == [(b"host", b"gpu:1"), *without(headers, *gone), *own]


@given(heads, st.sampled_from([200, 404, 500, 599, 999]), st.booleans(), st.booleans())
@example([(b"connection", b"set-cookie"), (b"set-cookie", b"a=1")], 200, False, False)
def test_of_an_answer_goes_on_what_is_for_the_client(headers: Headers, status: int, close: bool, cors: bool) -> None:
    there = [*headers, (OWN_PREFIX + b"replica", b"forged"), (b"access-control-allow-origin", b"*")]
    framing = b"transfer-encoding: chunked\r\n"
    own = b"x-request-id: id-1\r\n" + (b"access-control-allow-origin: https://a\r\n" if cors else b"")
    first, fields = parsed(answer_head(status, there, framing, own, close))
    foreign = [OWN_PREFIX + b"replica", *([b"access-control-allow-origin"] if cors else [])]
    passed = without(there, *OF_ONE_CONNECTION, b"content-length", b"x-request-id", *foreign)
    written = [(b"transfer-encoding", b"chunked"), (b"x-request-id", b"id-1")]
    written += [(b"access-control-allow-origin", b"https://a")] if cors else []
    written += [(b"connection", b"close")] if close else []
    assert first.startswith(b"HTTP/1.1 %d " % status)
    assert fields == [*passed, *written]


@given(heads, st.permutations(ORDINARY))
def test_who_may_send_what_does_not_depend_on_what_else_is_there(headers: Headers, order: list[bytes]) -> None:
    """A field that Connection does not name goes on, whatever stands beside it."""
    name = order[0]
    assume(name not in said_of_connection(headers))
    _, fields = parsed(request_head(b"GET", b"/", [*headers, (name, b"mine")], b"h", b"i", None))
    assert (name, b"mine") in fields


def test_the_names_here_are_all_there_are() -> None:
    assert set(OF_ONE_CONNECTION) == HOP_BY_HOP
    assert {*PROTECTED, *WAY, b"x-request-id"} == KEPT
    assert CREDENTIALS <= KEPT
