"""A Redis URL taken apart, and what is said of one that can't be."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.redis_store.address import Address, parse

SECRET = "gull-and-buoy"

ADDRESSES = {
    "redis://cache": Address("standalone", (("cache", 6379),)),
    "redis://cache:7000/3": Address("standalone", (("cache", 7000),), db=3),
    " redis://cache/ ": Address("standalone", (("cache", 6379),)),
    "REDIS://cache": Address("standalone", (("cache", 6379),)),
    "valkey://cache": Address("standalone", (("cache", 6379),)),
    "redis://[::1]": Address("standalone", (("::1", 6379),)),
    "redis://[2001:db8::5]:7000/1": Address("standalone", (("2001:db8::5", 7000),), db=1),
    "redis://:pass@cache": Address("standalone", (("cache", 6379),), password="pass"),
    "redis://me:p%40ss%3A%2F%3f@cache": Address("standalone", (("cache", 6379),), username="me", password="p@ss:/?"),
    "redis://me:p@ss:w/rd@cache": Address("standalone", (("cache", 6379),), username="me", password="p@ss:w/rd"),
    "redis://:a+b@cache": Address("standalone", (("cache", 6379),), password="a+b"),
    "rediss://cache": Address("standalone", (("cache", 6379),), tls=True),
    "valkeys://cache": Address("standalone", (("cache", 6379),), tls=True),
    "rediss://cache?ssl_cert_reqs=none": Address("standalone", (("cache", 6379),), tls=True, verify=False),
    "rediss://cache?ssl_ca_certs=/etc/ca.pem&ssl_cert_reqs=required": Address(
        "standalone", (("cache", 6379),), tls=True, ca_file="/etc/ca.pem"
    ),
    "unix:///run/redis.sock": Address("standalone", path="/run/redis.sock"),
    "unix://me:pass@/run/my%20redis.sock?db=2": Address(
        "standalone", path="/run/my redis.sock", db=2, username="me", password="pass"
    ),
    "redis+sentinel://one/mine": Address("sentinel", (("one", 26379),), service="mine"),
    "redis+sentinel://one:1,two,[::3]:4/mine/5": Address(
        "sentinel", (("one", 1), ("two", 26379), ("::3", 4)), service="mine", db=5
    ),
    "redis+sentinel://me:pass@one,two/a%2Fb?sentinel_username=you&sentinel_password=w%26rd+": Address(
        "sentinel",
        (("one", 26379), ("two", 26379)),
        service="a/b",
        username="me",
        password="pass",
        sentinel_username="you",
        sentinel_password="w&rd+",
    ),
    "rediss+sentinel://one/mine?ssl_cert_reqs=none": Address(
        "sentinel", (("one", 26379),), service="mine", tls=True, verify=False
    ),
    "redis+cluster://one,two:7001": Address("cluster", (("one", 6379), ("two", 7001))),
    "redis+cluster://:pass@one/0": Address("cluster", (("one", 6379),), password="pass"),
    "rediss+cluster://one": Address("cluster", (("one", 6379),), tls=True),
}

MISTAKES = {
    "": "begins with one of",
    "cache:6379": "begins with one of",
    "http://cache": "begins with one of",
    "sentinel://one/mine": "begins with one of",
    "redis://": "needs a host",
    "redis://:6379": "needs a host",
    "redis://a b": "needs a host",
    "redis://a%20b": "needs a host",
    "redis+cluster://one,": "needs a host",
    "redis://cache:": "no number from 1 to 65535",
    "redis://cache:0": "no number from 1 to 65535",
    "redis://cache:65536": "no number from 1 to 65535",
    "redis://cache:٣": "no number from 1 to 65535",
    "redis://::1": "two colons",
    "redis://[::1": r"\[address\]:port",
    "redis://[::1]6379": r"\[address\]:port",
    "redis://cache/first": "the database of a Redis URL is a number",
    "redis://cache/-1": "the database of a Redis URL is a number",
    "redis://cache/1/2": "nothing may follow",
    "redis://one,two": r"redis\+sentinel:// or redis\+cluster://",
    "redis+cluster://one,one:6379": "stands twice",
    "redis+cluster://one/1": "only database 0",
    "redis+sentinel://one": "the service is missing",
    "redis+sentinel://one/": "the service is missing",
    "redis+sentinel://one//1": "the service is missing",
    "redis+sentinel://one/mine/1/2": "nothing may follow",
    "unix://run/redis.sock": "by its whole path",
    "unix:///run/redis.sock?db=x": "the database of a Redis URL is a number",
    "redis://cache#1": "no #fragment",
    "redis://cache?db=1": "can't have the option db; it takes none",
    "redis://cache?ssl_cert_reqs=none": "can't have the option ssl_cert_reqs",
    "rediss://cache?colour=red": "unknown option; options are ssl_ca_certs, ssl_cert_reqs",
    "rediss://cache?ssl_cert_reqs=optional": "either none or required",
    "rediss://cache?ssl_cert_reqs=none&ssl_cert_reqs=none": "twice",
    "rediss://cache?ssl_ca_certs=": "is empty",
    "redis+cluster://one?sentinel_password=x": "can't have the option sentinel_password",
    "redis://me@cache": "a user and no password",
    "redis://:%ff@cache": "not UTF-8",
}

MISTAKES_WITH_A_PASSWORD = (
    "redis://me:{}",
    "{}",
    "redis:/:{}@cache",
    "http://me:{}@cache",
    "redis://{}@cache",
    "redis://:{}@",
    "redis://:{}@cache:port",
    "redis://me:{}@one,two",
    "redis://:a?{}@cache",
    "redis://:a?b={}@cache",
    "redis://:a#{}@cache",
    "redis://:{}%ff@cache",
    "redis://:a/{}",
    "redis://me:1/{}",
    "redis+sentinel://one/mine?password={}",
    "redis+sentinel://one/mine?sentinel_password={}&sentinel_password=",
    "redis+sentinel://:{}@one",
    "redis+cluster://:{}@one/1",
    "unix://:{}@redis.sock",
)


@pytest.mark.parametrize(("url", "address"), ADDRESSES.items())
def test_a_url_is_taken_apart(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(("url", "words"), MISTAKES.items())
def test_a_mistake_is_named(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(url)


@pytest.mark.parametrize("form", MISTAKES_WITH_A_PASSWORD)
def test_no_error_quotes_a_password(form: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse(form.format(SECRET))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:gull-and-buoy@cache", "redis://cache:6379/0"),
        ("valkeys://:gull-and-buoy@cache/2?ssl_cert_reqs=none", "rediss://cache:6379/2?ssl_cert_reqs=none"),
        ("rediss+cluster://:gull-and-buoy@[::1],b", "rediss+cluster://[::1]:6379,b:6379"),
        ("redis+sentinel://me:gull-and-buoy@a,b/c?sentinel_password=gull-and-buoy", "redis+sentinel://a:26379,b:26379/c/0"),
        ("unix://:gull-and-buoy@/run/redis.sock", "unix:///run/redis.sock"),
    ],
)  # fmt: skip
def test_it_is_shown_without_credentials(url: str, shown: str) -> None:
    address = parse(url)
    assert str(address) == shown
    assert SECRET not in repr(address)


def test_parsing_needs_no_redis_client() -> None:
    """Every command reads the settings, `--help` too."""
    code = "import sys, router.adapters.redis_store.address; sys.exit('redis' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
hosts = st.from_regex(r"[a-z][a-z0-9.-]{0,15}", fullmatch=True) | st.ip_addresses().map(str)
nodes = st.tuples(hosts, st.integers(1, 65_535))
user_and_password = st.tuples(st.none() | words, words) | st.just((None, None))


@st.composite
def addresses(draw: st.DrawFn) -> Address:
    kind: Literal["standalone", "sentinel", "cluster", "unix"] = draw(
        st.sampled_from(["standalone", "sentinel", "cluster", "unix"])
    )
    username, password = draw(user_and_password)
    db = 0 if kind == "cluster" else draw(st.integers(0, 99))
    address = Address("standalone", db=db, username=username, password=password)
    if kind == "unix":
        return replace(address, path="/" + draw(words))
    tls = draw(st.booleans())
    if tls:
        address = replace(address, tls=True, verify=draw(st.booleans()), ca_file=draw(st.none() | words))
    if kind == "standalone":
        return replace(address, nodes=(draw(nodes),))
    address = replace(address, kind=kind, nodes=tuple(draw(st.lists(nodes, min_size=1, max_size=3, unique=True))))
    if kind == "sentinel":
        name, word = draw(user_and_password)
        address = replace(address, service=draw(words), sentinel_username=name, sentinel_password=word)
    return address


def written(address: Address) -> str:
    """The URL with its credentials, put into what is shown without them."""
    scheme, _, rest = str(address).partition("://")
    credentials = ""
    if address.password is not None:
        credentials = f"{quote(address.username or '', safe='')}:{quote(address.password, safe='')}@"
    options = [
        f"{name}={quote(value, safe='')}"
        for name in ("sentinel_username", "sentinel_password")
        if (value := getattr(address, name)) is not None
    ]
    mark = "&" if "?" in rest else "?"
    return f"{scheme}://{credentials}{rest}" + (mark + "&".join(options) if options else "")


@given(addresses())
def test_what_is_written_is_read_back(address: Address) -> None:
    assert parse(written(address)) == address


@given(addresses())
def test_what_is_shown_is_the_same_place(address: Address) -> None:
    unnamed = replace(address, username=None, password=None, sentinel_username=None, sentinel_password=None)
    assert parse(str(address)) == unnamed


@given(
    st.text(max_size=40)
    | st.tuples(st.sampled_from(["redis", "unix", "redis+sentinel"]), st.text(max_size=40)).map("://".join)
)
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = parse(text)
    except ValueError as error:
        assert str(error)
    else:
        assert address.path or address.nodes
