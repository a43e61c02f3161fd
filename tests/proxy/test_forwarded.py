"""Where a request came from: trusted proxies are believed, everybody else's word is replaced."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from router.proxy.forwarded import Forwarded
from tests.rig.client import chat
from tests.rig.stage import Stage
from tests.rig.upstream import answering

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
SAID = [
    ("X-Forwarded-For", "203.0.113.9"),
    ("x-forwarded-for", "198.51.100.1"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "chat.example"),
    ("X-Forwarded-Port", "443"),
    ("Forwarded", "for=203.0.113.9;proto=https"),
    ("X-Real-IP", "203.0.113.9"),
]


async def test_what_anybody_says_of_its_way_is_dropped_and_made_anew(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, trusted_proxy="10.0.0.0/8")
    await stage.ask(router, chat(headers=[*SAID, ("connection", "x-forwarded-for")]))
    received = upstream.requests[0]
    assert received.all("x-forwarded-for") == ["127.0.0.1"]
    assert received.all("x-forwarded-proto") == ["http"]
    for name in ("x-forwarded-host", "x-forwarded-port", "forwarded", "x-real-ip"):
        assert received.all(name) == []
    assert b"203.0.113.9" not in received.raw_head


async def test_a_trusted_proxy_is_believed_and_named(stage: Stage) -> None:
    upstream = await stage.upstream(answering(OK))
    router = await stage.router(upstream, trusted_proxy="10.0.0.0/8, 127.0.0.1")
    await stage.ask(router, chat(headers=[*SAID, ("connection", "x-real-ip, forwarded")]))
    received = upstream.requests[0]
    assert received.all("x-forwarded-for") == ["203.0.113.9, 198.51.100.1, 127.0.0.1"]
    assert received.all("x-forwarded-proto") == ["https"]
    assert received.header("x-forwarded-host") == "chat.example"
    assert received.header("forwarded") == "for=203.0.113.9;proto=https, for=127.0.0.1;proto=http"
    assert received.header("x-real-ip") == "203.0.113.9"


def lines(peer: str | None, said: list[tuple[bytes, bytes]] | None = None, proxies: tuple[str, ...] = ()) -> bytes:
    return Forwarded(peer, "https", [ip_network(proxy) for proxy in proxies]).lines(said or [])


def test_a_trusted_proxy_that_says_nothing_is_the_client() -> None:
    assert lines("10.1.2.3", proxies=("10.0.0.0/8",)) == b"x-forwarded-for: 10.1.2.3\r\nx-forwarded-proto: https\r\n"


@pytest.mark.parametrize(
    ("peer", "shown"),
    [("::ffff:192.0.2.7", b"192.0.2.7"), ("2001:db8::1", b"2001:db8::1"), ("fe80::1%eth0", b"fe80::1")],
)
def test_addresses_of_both_kinds(peer: str, shown: bytes) -> None:
    assert lines(peer).startswith(b"x-forwarded-for: %b\r\n" % shown)


def test_ipv4_through_an_ipv6_socket_is_in_an_ipv4_network() -> None:
    assert Forwarded("::ffff:10.1.2.3", "http", [ip_network("10.0.0.0/8")]).trusted
    assert not Forwarded("::ffff:11.1.2.3", "http", [ip_network("10.0.0.0/8")]).trusted


def test_an_ipv6_proxy_is_quoted_in_forwarded() -> None:
    said = [(b"forwarded", b"for=192.0.2.1")]
    assert b'forwarded: for=192.0.2.1, for="[2001:db8::1]";proto=https\r\n' in lines("2001:db8::1", said, ("::/0",))


def test_who_comes_over_a_unix_socket_has_no_address() -> None:
    assert lines(None) == b""
    assert lines("") == b""
