"""What stands in Redis is read as it was written; what can't be read is absent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.redis_store import encoding
from router.adapters.redis_store.encoding import Names, encode, found, held, home, pack, read, unpack
from router.adapters.redis_store.sealing import Keyring
from router.core.landmarks import Found, Holder, Landmark, Question, landmarks
from router.core.news import Bulletin, Homed, Opened
from router.core.prompt import PromptBuilder
from router.core.replica import Load
from router.core.types import Prompt
from tests.core.worlds import SCOPE, prompt

PLAIN, KEYED = Keyring(None), Keyring("secret")
BULLETIN = Bulletin(7, True, [("r0", Load(1, 2, 3))], [Homed(9, "r1")])
CHAT = prompt(("system", "x" * 2_000), ("user", "y" * 700))


def text(content: bytes) -> Prompt:
    builder = PromptBuilder(SCOPE)
    builder.add_open(b"text", content)
    built = builder.build()
    assert built is not None
    return built


def value(*parts: Any) -> bytes:
    return encode(list(parts))


def written(landmark: Landmark, keyring: Keyring = KEYED) -> bytes:
    """What the script stores for one holder."""
    _, replica, start_s, *rest = held(landmark, "r1", 1_700_000_000.4, keyring)
    return value(*rest, [[replica, start_s, 1_700_000_100]])


def asked(asking: Prompt, *positions: int) -> Question:
    return Question(asking, list(positions), [])


# Names


def test_all_names_lie_in_one_slot_and_differ_by_what_they_name() -> None:
    names = Names("prod-7", KEYED)
    made = [names.channel.encode(), names.turn(1), names.turn(2), names.home(1), names.home(2)]
    assert len(set(made)) == 5
    assert all(name.startswith(b"{prod-7}:1:") for name in made)
    assert Names("prod-7", Keyring("other")).turn(1) != names.turn(1) == Names("prod-7", Keyring("secret")).turn(1)
    assert Names("prod-8", KEYED).turn(1) != names.turn(1)


# Operations


def test_an_operation_of_a_turn_end() -> None:
    assert held(Landmark(5, 640, 48), "r1", 1_700_000_000.6, PLAIN) == ("held", "r1", 1_700_000_001, 640, 48, 0, 0)
    assert held(Landmark(5), "r1", None, PLAIN) == ("held", "r1", 0, 0, 0, 0, 0)
    rest = 0x0123_4567_89AB_CDEF
    assert held(Landmark(5, 640, 48, 9, rest), "r1", None, PLAIN)[5:] == (9, 0x0123_4567_89AB)
    assert held(Landmark(5, 640, 48, 9, rest), "r1", None, KEYED)[5:] == (9, KEYED.check(rest))


def test_an_operation_of_a_home() -> None:
    assert home("r1", None) == ("home", "r1", "")
    assert home("r1", "r0") == ("home", "r1", "r0")


# Values


def test_values_are_read_as_they_were_written() -> None:
    values = [None, written(Landmark(1, 640, 48)), value(0, 0, 0, 0, [["r0", 0, 5], ["r2", 9, 4]])]
    assert found(asked(CHAT, 5, 4, 2), values, KEYED) == [
        Found(4, [Holder("r1", 1_700_000_000.0)], 640, 48),
        Found(2, [Holder("r0", None), Holder("r2", 9.0)]),
    ]


GARBAGE = {
    "empty": b"",
    "not-msgpack": b"\xc1\xff\xff",
    "text": b"hello world",
    "number": value(1)[1:],
    "too-few": value(1, 2, 3, 4),
    "of-another-type": value("640", 48, 0, 0, [["r0", 0, 5]]),
    "holders-are-no-list": value(640, 48, 0, 0, 5),
    "holder-is-no-list": value(640, 48, 0, 0, ["r0"]),
    "holder-too-short": value(640, 48, 0, 0, [["r0", 0]]),
    "truncated": value(640, 48, 0, 0, [["r0", 0, 5]])[:-1],
    "with-more-behind": value(640, 48, 0, 0, [["r0", 0, 5]]) + b"\x00",
    "map": encode({"prompt_tokens": 640}),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_value_that_is_garbage_is_absent(kind: str) -> None:
    good = written(Landmark(1, 640, 48))
    for asking in (CHAT, text(b"z" * 4_000)):
        said = found(asked(asking, 4, 2), [GARBAGE[kind], good], KEYED)
        assert [one.position for one in said] == [2]


@given(st.binary(max_size=60))
def test_no_value_raises(garbage: bytes) -> None:
    for asking in (CHAT, text(b"z" * 4_000)):
        assert len(found(asked(asking, 2), [garbage], KEYED)) <= 1


@pytest.mark.parametrize("keyring", [PLAIN, KEYED])
def test_a_texts_end_is_read_where_the_same_bytes_follow(keyring: Keyring) -> None:
    before, after = text(b"a" * 1_024 + b"question 1"), text(b"a" * 1_024 + b"question 1, answered" * 60)
    end = landmarks(before, 640, 48)[0]
    assert found(asked(after, 2), [written(end, keyring)], keyring) == [
        Found(2, [Holder("r1", 1_700_000_000.0)], 640, 48, 10)
    ]


@pytest.mark.parametrize("rest", [b"question 2 is another", b"question", b"", b"another one, and longer"])
def test_where_others_follow_it_is_held_and_ends_nothing(rest: bytes) -> None:
    end = landmarks(text(b"a" * 1_024 + b"question 1"), 640, 48)[0]
    other = text(b"a" * 1_024 + rest)
    assert found(asked(other, 2), [written(end)], KEYED) == [Found(2, [Holder("r1", 1_700_000_000.0)])]


def test_another_secrets_check_is_no_check() -> None:
    before = text(b"a" * 1_024 + b"question 1")
    end = landmarks(before, 640, 48)[0]
    assert found(asked(before, 2), [written(end, Keyring("other"))], KEYED)[0].prompt_tokens == 0


# Envelopes


@pytest.mark.parametrize("keyring", [PLAIN, KEYED])
def test_a_bulletin_is_read_as_it_was_told(keyring: Keyring) -> None:
    envelope = unpack(pack("A", 12, BULLETIN, keyring))
    assert envelope is not None
    assert (envelope.router, envelope.number, envelope.sealed) == ("A", 12, keyring.keyed)
    assert read(envelope, keyring) == BULLETIN


def test_an_envelope_of_another_version_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "VERSION", encoding.VERSION + 1)
    theirs = pack("A", 12, BULLETIN, PLAIN)
    assert unpack(theirs) is not None
    monkeypatch.undo()
    assert unpack(theirs) is None


@pytest.mark.parametrize("data", [*GARBAGE.values(), pack("A", 12, BULLETIN, PLAIN)[:-1]])
def test_what_is_no_envelope_is_passed_over(data: bytes) -> None:
    assert unpack(data) is None


@pytest.mark.parametrize(
    ("hashes_bytes", "ends_bytes", "sound"),
    [
        (0, 0, True),
        (8, 4, True),
        (80, 40, True),
        (7, 4, False),
        (8, 3, False),
        (8, 8, False),
        (0, 4, False),
        (8, 0, False),
    ],
)
def test_a_bulletin_with_blocks_that_are_no_blocks_is_not_read(hashes_bytes: int, ends_bytes: int, sound: bool) -> None:
    """Anybody who reaches Redis may publish where there is no secret; it must not end the loop that listens."""
    bulletin = Bulletin(0, False, [], [Homed(1, "r0"), Opened(1, "r0", 5, bytes(hashes_bytes), bytes(ends_bytes))])
    envelope = unpack(pack("A", 12, bulletin, PLAIN))
    assert envelope is not None
    assert read(envelope, PLAIN) == (bulletin if sound else None)


@given(st.binary(max_size=60))
def test_no_body_raises(body: bytes) -> None:
    for sealed, keyring in ((False, PLAIN), (True, KEYED)):
        envelope = unpack(encode(encoding.Envelope(encoding.VERSION, "A", 1, sealed, body)))
        assert envelope is not None
        read(envelope, keyring)
    unpack(body)


@pytest.mark.parametrize(("theirs", "ours"), [(None, "secret"), ("secret", None), ("other", "secret")])
def test_a_bulletin_under_another_secret_is_not_read(theirs: str | None, ours: str | None) -> None:
    envelope = unpack(pack("A", 12, BULLETIN, Keyring(theirs)))
    assert envelope is not None
    assert read(envelope, Keyring(ours)) is None


def test_a_sealed_bulletin_under_another_routers_name_is_not_read() -> None:
    envelope = unpack(pack("A", 12, BULLETIN, KEYED))
    assert envelope is not None
    for changed in ({"router": "B"}, {"number": 13}, {"sealed": False}):
        assert read(msgspec.structs.replace(envelope, **changed), KEYED) is None
