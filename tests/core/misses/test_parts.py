"""Parts as hashes, and the sketches that do not see what a stamp or another way of writing changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.misses.parts import (
    CODES,
    OTHER,
    PART_BYTES,
    ROLES,
    SKETCHED_BYTES,
    SKETCHED_TOOLS_BYTES,
    codes_of,
    count_of,
    hash_parts,
    hashes_of,
    sizes_of,
    sketch,
    sketches_of,
)
from router.core.prompt import MEDIA, MEDIA_BYTES, OPERATOR
from router.core.types import Part

USER, SYSTEM, TOOLS = CODES[b"user"], CODES[b"system"], CODES[b"tools"]
PROSE = b"The ferry leaves the quay at noon, and the crane swings round once more. "


def words(code: int, content: bytes) -> int:
    return sketch(code, content) >> 32


def plain(code: int, content: bytes) -> int:
    return sketch(code, content) & 0xFFFF_FFFF


def part(tag: bytes, content: bytes) -> Part:
    return (0, tag, content, 0)


def nothing(_: int) -> None:
    return None


def test_parts_are_packed_and_unpacked() -> None:
    packed = hash_parts([part(b"system", PROSE), part(b"pirate", b"arr"), part(MEDIA, b"x" * 9)], nothing)
    assert len(packed) == 3 * PART_BYTES
    assert count_of(packed) == 3
    assert codes_of(packed) == [SYSTEM, OTHER, CODES[MEDIA]]
    assert sizes_of(packed) == [len(PROSE), 3, MEDIA_BYTES]
    assert sketches_of(packed)[2] == 0
    assert hash_parts([], nothing) == b""


def test_a_hash_is_of_role_and_content_whatever_precedes_it() -> None:
    parts = [part(tag, content) for tag in (b"user", b"assistant", b"x", b"y") for content in (b"yes", b"no")]
    assert len(set(hashes_of(hash_parts(parts, nothing)))) == 8
    alone = hash_parts(parts[3:4], nothing)
    assert hashes_of(hash_parts(parts, nothing))[3] == hashes_of(alone)[0]


def test_what_the_operator_said_before_is_not_sketched_again() -> None:
    parts = [part(b"system", PROSE), part(b"user", PROSE)]
    known = hashes_of(hash_parts(parts, nothing))[0]
    packed = hash_parts(parts, lambda exact: 42 if exact == known else 43)
    assert sketches_of(packed)[0] == 42
    assert sketches_of(packed)[1] == sketch(USER, PROSE)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"It is 12:30:05. ", b"It is 23:59:59. "),
        (b"Request 550e8400-e29b-41d4-a716-446655440000: ", b"Request 6ba7b810-9dad-11d1-80b4-00c04fd430c8: "),
        (b"Turn 9 of 10. ", b"Turn 10 of 10. "),
    ],
)
def test_a_stamp_is_not_seen_by_the_lower_sketch_alone(one: bytes, other: bytes) -> None:
    for code in (USER, SYSTEM):
        assert plain(code, one + PROSE) == plain(code, other + PROSE) != 0
        assert words(code, one + PROSE) != words(code, other + PROSE)


def test_names_of_days_and_months_are_seen_in_messages_and_not_in_what_the_operator_says() -> None:
    one, other = b"Today is Monday, November 30. " + PROSE, b"Today is Friday, March 6. " + PROSE
    assert plain(SYSTEM, one) == plain(SYSTEM, other)
    assert plain(USER, one) != plain(USER, other)


@given(st.lists(st.sampled_from(["tide", "rope", "lamp"]), min_size=4), st.lists(st.sampled_from(" \n\t.,!-")))
def test_the_upper_sketch_does_not_see_how_words_are_set(said: list[str], between: list[str]) -> None:
    loose = "".join(word + (between[place % len(between)] if between else "") for place, word in enumerate(said))
    assert words(USER, " ".join(said).encode()) == words(USER, loose.encode())


@given(st.text(alphabet="tideropelampquay ", min_size=30), st.text(alphabet="tideropelampquay ", min_size=30))
def test_other_words_have_other_sketches(one: str, other: str) -> None:
    if one.replace(" ", "") != other.replace(" ", ""):
        assert words(USER, one.encode()) != words(USER, other.encode())


@pytest.mark.parametrize(
    "content", [b"", b"12:30", b"dead beef", b"cafe 0042 added", b"1, 2, 3; 4, 5, 6, 7, 8, 9 and on"]
)
def test_what_is_little_but_numbers_has_no_lower_sketch(content: bytes) -> None:
    assert plain(USER, content) == 0


def test_of_a_long_part_the_head_is_sketched_and_the_rest_is_taken_as_it_is() -> None:
    body = PROSE * (SKETCHED_BYTES // len(PROSE) + 20)
    stamped = b"12:44" + body[5:]
    assert plain(USER, b"12:30" + body[5:]) == plain(USER, stamped)
    assert plain(USER, stamped + b"1") != plain(USER, stamped + b"2"), "what is not looked into is not alike"
    assert sketch(USER, memoryview(body)) == sketch(USER, body)


def tools(*names: str, **fields: Any) -> bytes:
    return json.dumps([{"name": name, "about": f"{name} does what {name} says"} | fields for name in names]).encode()


def test_tools_are_the_same_in_any_order() -> None:
    assert sketch(TOOLS, tools("look", "call", "wait")) == sketch(TOOLS, tools("wait", "look", "call"))
    assert words(TOOLS, tools("look", "call")) != words(TOOLS, tools("look", "stop"))
    assert words(TOOLS, tools("look", "look")) != words(TOOLS, tools("look"))
    assert plain(TOOLS, tools("look", at="12:30")) == plain(TOOLS, tools("look", at="12:44")) != 0


def test_tools_that_are_no_list_or_too_many_are_a_text() -> None:
    for content in (b'{"a": 1}', b"[1, 2", tools("x" * SKETCHED_TOOLS_BYTES)):
        assert sketch(TOOLS, content)
    assert sketch(TOOLS, b'{"look": 1, "call": 2}') != sketch(TOOLS, b'{"call": 2, "look": 1}')


def test_tags_have_codes_in_the_order_in_which_they_are_rendered() -> None:
    assert max(CODES[tag] for tag in OPERATOR) < CODES[b"user"]
    assert len(ROLES) == OTHER + 1
    assert set(ROLES) == {"template", "tools", "system", "user", "assistant", "tool", "call", "media", "other"}
