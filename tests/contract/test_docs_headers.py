"""docs/reference/headers.md says which headers are read, dropped, replaced and added."""

from __future__ import annotations

import re
import time
from hashlib import sha256

from router.app.settings.model import Settings
from router.core.allowance import ClientKey, KeyLimits
from router.core.misses.types import TurnAccount
from router.core.types import Decision, Reason
from router.proxy.cors import Cors
from router.proxy.door import Door, Pass
from router.proxy.explaining import EXPLAIN, explain_line
from router.proxy.headers import (
    _NOT_ANSWER,
    _NOT_REQUEST,
    CREDENTIALS,
    HOP_BY_HOP,
    OWN_PREFIX,
    TRACE_CONTEXT,
    answer_head,
    request_head,
)
from router.proxy.incoming import Incoming
from router.proxy.openai import PRIORITY_HEADERS
from router.proxy.report import own_lines
from tests.contract.pages import DOCS, ROOT, code, pages, section, table

PAGE = DOCS / "reference" / "headers.md"
READ, DROPPED, ADDED = "Read from requests", "Not passed on to the replica", "Added to answers"


def names(heading: str) -> set[str]:
    rows = table(PAGE, heading)
    found = {code(row[0]) for row in rows}
    assert len(found) == len(rows), "a header stands in the table twice"
    return found


def test_every_header_that_is_not_passed_on_is_documented() -> None:
    assert names(DROPPED) == {name.decode() for name in _NOT_REQUEST}


def test_none_of_them_is_passed_on_and_others_are() -> None:
    sent = [(name.encode(), b"client") for name in sorted(names(DROPPED))] + [(b"x-other", b"client")]
    head = request_head(b"POST", b"/v1/x", sent, b"replica:1", b"id-1", 5)
    lines = head.split(b"\r\n")[1:-2]
    assert [line for line in lines if b"client" in line] == [b"x-other: client"]


def test_the_headers_that_are_read_are_documented() -> None:
    (session_header,) = Settings().session_header
    keys = {name.decode() for name in CREDENTIALS}
    preflight = {"origin", "access-control-request-method", "access-control-request-headers"}
    priority = {name.decode() for name in PRIORITY_HEADERS}
    trace = {name.decode() for name in TRACE_CONTEXT}
    own = {session_header, "x-request-id", "expect", EXPLAIN.decode()}
    assert names(READ) == own | priority | keys | preflight | trace


def added() -> set[str]:
    turn = TurnAccount("s-1", 2, 1.0, 64, 64, 0, None, None)
    own = own_lines(b"id-1", Decision("r-1", Reason.WARM, [], 100, 64, "r-1")) + explain_line(turn)
    lines = own.decode().splitlines()
    return {line.partition(":")[0] for line in lines}


def test_every_header_that_is_added_is_documented() -> None:
    assert names(ADDED) == added() | {"retry-after", "www-authenticate"} | of_limits() | of_cors()


def of_limits() -> set[str]:
    door = Door(time.monotonic)
    door.take_keys([ClientKey("a", sha256(b"k").digest(), KeyLimits(1, 1, 1))])
    admission = door.admit(Incoming(b"GET", b"/v1/x", "/v1/x", [(b"api-key", b"k")], http_1_0=False))
    assert isinstance(admission, Pass)
    return {line.partition(":")[0] for line in admission.lines.decode().splitlines()}


def of_cors() -> set[str]:
    origin = b"https://a.example"
    fields = {b"origin": origin, b"access-control-request-headers": b"x-a"}
    return {name.decode() for name, _ in Cors((origin.decode(),)).preflight_headers(fields)}


def test_what_is_not_taken_over_from_a_replica_is_documented() -> None:
    text = section(PAGE, ADDED)
    for name in _NOT_ANSWER - HOP_BY_HOP:
        assert f"`{name.decode()}`" in text, name
    assert f"`{OWN_PREFIX.decode()}`" in text
    engine = [(name, b"engine") for name in (*sorted(_NOT_ANSWER), b"x-warmroute-replica", b"date")]
    assert answer_head(200, engine, b"", b"", close=False).count(b"engine") == 1


def test_every_header_of_ours_named_in_the_docs_exists() -> None:
    known = added() | {name.decode() for name in PRIORITY_HEADERS}
    for page in pages():
        for name in re.findall(r"\bx-warmroute-[a-z-]*[a-z]\b", page.read_text()):
            assert name in known or page.read_text().count("^x-warmroute"), f"{page.relative_to(ROOT)}: {name}"
